"""Files of a cache: whole or absent, readable by their owner only, and found out when cut short or changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from noisette.errors import InvalidInput

__all__ = ["HEADER", "check", "keep"]

HEADER = 4096
"""Bytes before the contents, so that these start on a page."""


def keep(path: Path, contents: Iterable[bytes]) -> None:
    """Write `contents`, a piece in memory at a time, behind a header with their digest.

    >>> with tempfile.TemporaryDirectory() as here:
    ...     keep(Path(here, "f"), [b"ab", b"c"])
    ...     check(Path(here, "f"))
    True
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".kept.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(bytes(HEADER))
            digest = hashlib.sha256()
            for piece in contents:
                digest.update(piece)
                file.write(piece)
            file.seek(0)
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidInput(
            f"nothing can be kept in {path.parent} ({(error.strerror or 'unknown error').lower()}).",
            hint="free some space there, or set NOISETTE_CACHE to another folder",
        ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def check(path: Path) -> bool:
    """Whether `path` is there, whole and unchanged."""
    try:
        with path.open("rb") as file:
            head = file.read(HEADER)
            return head == hashlib.file_digest(file, "sha256").hexdigest().encode().ljust(HEADER, b"\0")
    except OSError:
        return False
