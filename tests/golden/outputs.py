"""The keys of what every command prints with --json, and what the folders of a run and of a search hold."""

from __future__ import annotations

import io
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.golden import names
from tests.golden.streams import asked

__all__ = ["computed"]

_NETS = """
from torch import nn

fine = nn.Linear(4, 2)
mixed = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
"""


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """The path of every entry: of a table by its key, of a list by [] for all of its entries."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _keys(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for entry in value:
            yield from _keys(entry, f"{path}[]")
    else:
        yield path


def _told(text: str) -> list[str]:
    return sorted(set(_keys(json.loads(text))))


def _run(arguments: tuple[str, ...], says: tuple[int, ...] = (0,)) -> str:
    """What a command writes to stdout, in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["noisette", *arguments])
        try:
            names.run_command()
        except SystemExit as ended:
            code = ended.code or 0
    assert code in says, f"{' '.join(arguments)} ends with {code}: {err.getvalue()}"
    return out.getvalue()


def _held(folder: Path) -> dict[str, list[str]]:
    """Every file of a folder, numbers in its name as #, with the keys that it has where it is JSON or TOML."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            keys = found.setdefault(re.sub(r"\d+", "#", path.relative_to(folder).as_posix()), set())
            if path.suffix == ".json":
                keys.update(_keys(json.loads(path.read_text())))
            elif path.suffix == ".jsonl":
                keys.update(key for line in path.read_text().splitlines() for key in _keys(json.loads(line)))
            elif path.suffix == ".toml":
                keys.update(_keys(tomllib.loads(path.read_text())))
    return {name: sorted(keys) for name, keys in sorted(found.items())}


def computed(folder: Path) -> dict[str, Any]:
    """All of it, of commands that run in an empty `folder`; and the purposes of the generators that each one makes."""
    (folder / "nets_of_the_freeze.py").write_text(_NETS)
    for name, text in names.RECIPES.items():
        (folder / f"{name}.toml").write_text(text)
    found: dict[str, Any] = {"keys": {}, "purposes": {}, "folders": {}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setenv(names.CACHE, str(folder / "cache"))
        patch.delenv(names.DATA, raising=False)
        published = names.published(folder / "fetched")
        for label, arguments in names.COMMANDS.items():
            with asked() as purposes:
                if label in names.INTERRUPTED:
                    with names.interrupted():
                        _run(names.INTERRUPTED[label], says=(names.STOPPED,))
                given = [published.name if word == "PUBLISHED" else word for word in arguments]
                text = _run((*given, "--json"), says=(0, 1) if label == "check, refused" else (0,))
            found["keys"][label] = _told(text)
            found["purposes"][label] = sorted(purposes)
            if label in names.FOLDERS:
                found["folders"][label] = _held(Path(json.loads(text)[names.FOLDERS[label]]))
    for label, call in names.CALLS.items():
        with asked() as purposes:
            call()
        found["purposes"][label] = sorted(purposes)
    sys.modules.pop("nets_of_the_freeze", None)  # of a folder that goes away
    return found
