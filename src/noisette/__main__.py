"""``python -m noisette`` is the command line."""

from noisette.app.commands import main

if __name__ == "__main__":
    main()
