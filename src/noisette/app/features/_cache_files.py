"""Files of a cache: whole or absent, readable by their owner only, and found out when cut short or changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from noisette import _io, _locks, _regular
from noisette.errors import InvalidInput

__all__ = ["HEADER", "build_once", "check", "write"]

HEADER = 4096
"""Bytes before the contents, so that these start on a page."""

_LOCK = ".lock"


def build_once(path: Path, contents: Callable[[], Iterable[bytes]]) -> bool:
    """Keep what `contents` makes at `path`, unless that is there; whether it had to be made.

    Of several processes that want the same file at once, say those of one run, one makes it and the others wait.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     [build_once(Path(here, "f"), lambda: [b"abc"]) for _ in range(2)]
    [True, False]
    """
    if check(path):
        return False
    with _alone(path):
        if check(path):
            return False
        write(path, contents())
        return True


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Inside, no other process of this machine makes `path`. A process that dies gives its place back by that."""
    lock = path.with_name(f".{path.name}{_LOCK}")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        _locks.hold(handle, wait=True)
        yield
    finally:
        # whoever waits for it goes on with a file that has no name any more, and finds what was made
        lock.unlink(missing_ok=True)
        os.close(handle)


def write(path: Path, contents: Iterable[bytes]) -> None:
    """Write `contents`, a piece in memory at a time, behind a header with their digest.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     write(Path(here, "f"), [b"ab", b"c"])
    ...     check(Path(here, "f"))
    True
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path.parent)
        with _io.replacing(path, mode=0o600) as file:
            file.write(bytes(HEADER))
            digest = hashlib.sha256()
            for piece in contents:
                digest.update(piece)
                file.write(piece)
            file.seek(0)
            file.write(digest.hexdigest().encode())
    except OSError as error:
        raise _unwritable(path, error) from None


def _clear(folder: Path) -> None:
    """Remove what processes had begun to write when they were killed: nobody holds a lock on it."""
    for left in folder.glob("*.new"):
        with contextlib.suppress(OSError), _regular.opened(left) as file:
            _locks.hold(file.fileno())
            left.unlink()


def _unwritable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"nothing can be kept in {path.parent} ({_io.reason(error)}).",
        hint="free some space there, or set NOISETTE_CACHE to another folder",
    )


def check(path: Path) -> bool:
    """Whether `path` is there, whole and unchanged."""
    try:
        with _regular.opened(path) as file:
            head = file.read(HEADER)
            return head == hashlib.file_digest(file, "sha256").hexdigest().encode().ljust(HEADER, b"\0")
    except OSError:
        return False
