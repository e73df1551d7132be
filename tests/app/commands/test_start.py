"""What the command line says about itself it says at once: without torch, numpy or scipy. Read from sys.modules."""

from __future__ import annotations

import json
import subprocess
import sys

from noisette.app.commands import app

HEAVY = {"torch", "numpy", "scipy", "dp_accounting", "matplotlib", "sklearn", "PIL", "cryptography"}
COMMANDS = [str(known.name) for known in [*app.registered_commands, *app.registered_groups]]
USAGE = 2

# main() once for every line of arguments, in one process: what is loaded stays loaded, and is told after each
SCRIPT = """
import contextlib, io, json, sys
from noisette.app.commands import main

told = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["noisette", *line]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
    except SystemExit as ended:
        told.append((ended.code or 0, out.getvalue(), sorted({name.partition(".")[0] for name in sys.modules})))
print(json.dumps(told))
"""


def started(*lines: str) -> list[tuple[int, str, set[str]]]:
    """The status, the words and the packages that are loaded after each of `lines`."""
    arguments = json.dumps([line.split() for line in lines])
    done = subprocess.run([sys.executable, "-c", SCRIPT, arguments], capture_output=True, text=True, check=True)
    return [(code, words, set(loaded)) for code, words, loaded in json.loads(done.stdout)]


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    helped = ["--help", "--version", *(f"{name} --help" for name in COMMANDS), "data fetch --help"]
    wrong = ["no-such-command", "--no-such-option", *(f"{name} --no-such-option" for name in COMMANDS)]
    wrong += ["account --steps many", "calibrate", "compare --epsilon", "resume", "data no-such-command", "data fetch"]
    found = started(*helped, *wrong)
    assert len(found) == len(helped) + len(wrong)
    for line, (code, words, loaded) in zip(helped + wrong, found, strict=True):
        assert not loaded & HEAVY, line
        assert code == (USAGE if line in wrong else 0), (line, words)


def test_help_lists_every_command_with_a_line_about_it() -> None:
    ((code, words, _),) = started("--help")
    rows = [row.strip(" │|").split(maxsplit=1) for row in words.splitlines()]
    said = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in COMMANDS}
    assert code == 0
    assert list(said) == COMMANDS
