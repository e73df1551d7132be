"""Freeze anew: `python -m tests.golden.freeze` writes golden.json and prints what changed.

Entries that still hold stay as they are, to the last digit. Commit what changed by itself, and say why.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.golden import frozen, mechanisms, names, outputs, streams


def main() -> None:
    """Compute everything, write the file, and print a line for every entry that is not what it was."""
    if not names.variants():
        sys.exit("the native kernel is not built, and what it encodes is frozen as well: make test builds it")
    with tempfile.TemporaryDirectory() as folder:
        new = mechanisms.computed() | streams.computed() | streams.by_kernel() | outputs.computed(Path(folder))
    old = frozen.read()
    changed = list(frozen.differences(old, new, mechanisms.tolerance()))
    frozen.FILE.write_text(frozen.text_of(frozen.kept(old, new, mechanisms.tolerance())), encoding="utf-8")
    sys.stdout.write("".join(f"{line}\n" for line in changed) or "nothing changed\n")


if __name__ == "__main__":
    main()
