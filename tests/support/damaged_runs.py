"""A run of milliseconds, every way to damage one of its files, and what a command may then do."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

from noisette.app.runs import start
from tests.support.command import Outcome
from tests.support.tiny_run import recipe

VALUES: tuple[Any, ...] = (
    "", "text", "[/bold]", "\ud800", "../../escape", "NaN", 0, -1, 1, 2.5, 10**18, 10**400, 1e300, 5e-324, True, [],
    [0], [[]], {}, {"a": 1}, None,
)  # fmt: skip
"""What may stand in the place of another value."""

Damage = Callable[[Path], None]


def begun(folder: Path) -> Path:
    """A run that was cut off after two of its three steps."""
    plan = recipe(folder, steps=3, evaluations=3, denoiser="Identity()", averaging=0.5)
    opened = start(folder, plan, data_root=folder)
    for _ in opened.points():
        if opened.private.num_updates == 2:
            break
    opened.close()
    return opened.folder


def snapshot(folder: Path) -> dict[str, str]:
    """Everything below `folder`, by name: its kind, or a digest of what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = "folder" if path.is_dir() else "other"
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else kind
    return found


def assert_documented(done: Outcome) -> None:
    """A documented exit status; an error is one sentence, a blank line and a hint, and nothing is on stdout."""
    assert done.code in (0, 1, 2, 3), done.err
    assert "Traceback" not in done.err
    assert "Warning" not in done.err
    if done.code == 1:
        assert done.out == ""
        assert re.search(r"^error: [^\n]+\.\n\nhint: [^\n]+\n\Z", done.err, re.MULTILINE), done.err
    if done.code in (1, 2):
        assert done.err.strip()


def damages(path: Path, rng: random.Random, count: int) -> Iterator[tuple[str, Damage]]:
    """Named ways to damage a file: `count` cuts and as many flips, what else could be there, and other values."""
    whole = path.read_bytes()
    for cut in sorted(rng.sample(range(len(whole)), min(count, len(whole)))):
        yield f"cut at {cut}", _holds(whole[:cut])
    for place in sorted(rng.sample(range(len(whole)), min(count, len(whole)))):
        bit = 1 << rng.randrange(8)
        yield f"bit {bit} flipped at {place}", _holds(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
    for other in (b"", b"abc", b"\0" * 64, b"\xff\xfe" * 9, rng.randbytes(500), b"[" * 100_000, b"1" * 5000, b"PK\3\4"):
        yield f"holds {other[:9]!r}", _holds(other)
    for text in ("[]", "3", '"text"', "null", "{}", "NaN", '{"epsilon": NaN}', "x = 1", "\ufeff{}", "{}\n{}", "\n\n"):
        yield f"holds {text}", _holds(text.encode())
    yield "a later version", _holds(b'{"version": 2}\n' + whole)
    yield "twice", _holds(whole + whole)
    yield "gone", Path.unlink
    yield "a folder", lambda file: (file.unlink(), file.mkdir())[-1]
    yield "a pipe", lambda file: (file.unlink(), os.mkfifo(file))[-1]
    yield "a link to itself", lambda file: (file.unlink(), file.symlink_to(file))[-1]
    yield "no permission", lambda file: file.chmod(0)
    for neighbour in sorted(path.parent.iterdir()):
        if neighbour != path:
            yield f"like {neighbour.name}", _holds(neighbour.read_bytes())
    if path.suffix in (".json", ".jsonl", ".toml"):
        yield from _other_values(path)


def _holds(data: bytes) -> Damage:
    return lambda file: (file.write_bytes(data), None)[-1]


def _other_values(path: Path) -> Iterator[tuple[str, Damage]]:
    """Every value replaced by every other kind of value; one key missing; one key more."""
    text = path.read_text()
    toml = path.suffix == ".toml"
    first, *rest = text.splitlines() if path.suffix == ".jsonl" else [text]
    known = tomllib.loads(first) if toml else json.loads(first)

    def changed(table: dict[str, Any]) -> Damage | None:
        try:
            lines = [tomli_w.dumps(table) if toml else json.dumps(table), *rest]
            return _holds(("\n".join(lines) + "\n").encode())
        except (TypeError, ValueError, UnicodeEncodeError):
            return None  # TOML has no null, and no half characters

    for key in known:
        for value in VALUES:
            if damage := changed(known | {key: value}):
                yield f"{key} = {str(value)[:20]!r}", damage
        if damage := changed({name: value for name, value in known.items() if name != key}):
            yield f"no {key}", damage
        if damage := changed({(f"{key}x" if name == key else name): value for name, value in known.items()}):
            yield f"{key} misspelt", damage


def copied(source: Path, to: Path) -> Path:
    """The run, and the data beside it, in a place of their own."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(source, to, symlinks=True))
