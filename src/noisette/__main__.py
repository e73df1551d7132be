"""``python -m noisette`` is the command line."""

from noisette.cli import main

if __name__ == "__main__":
    main()
