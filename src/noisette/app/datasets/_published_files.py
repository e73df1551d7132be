"""Files of a published data set: found, decompressed no further than their size, and held to their SHA-256."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import lzma
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from noisette import _io
from noisette._regular import opened
from noisette.errors import InvalidInput

__all__ = ["DataFile", "cache_folder", "check", "data_root", "decompress", "locate", "read"]

_SUFFIXES = ("", ".gz", ".xz")
_XZ_MEMORY = 1 << 28  # bytes; the strongest preset of xz takes a quarter of it


@dataclass(frozen=True)
class DataFile:
    """One file as its authors publish it, uncompressed: its name, its size in bytes and its SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


def data_root(root: str | Path | None = None) -> Path:
    """Where data sets live: `root` if given, otherwise the environment's NOISETTE_DATA, otherwise ``./data``.

    >>> data_root("elsewhere").name
    'elsewhere'
    """
    return Path(root or os.environ.get("NOISETTE_DATA") or "data")


def cache_folder() -> Path:
    """Where decompressed copies live: NOISETTE_CACHE, otherwise ``noisette`` under XDG_CACHE_HOME or ``~/.cache``."""
    if own := os.environ.get("NOISETTE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "noisette"


def locate(file: DataFile, folder: Path) -> Path | None:
    """The path of `file` in `folder`, plain or compressed, or None."""
    paths = (folder / (file.name + suffix) for suffix in _SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def read(file: DataFile, path: Path, cache: Path) -> bytes:
    """The checked contents of `file`, which is stored in `path`.

    An xz file takes seconds, so a decompressed copy is kept in `cache` under the SHA-256 of the stored file: another
    stored file never meets this one's copy. A copy is held to the same check, and replaced when it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     stored = Path(here, "f.gz")
    ...     _ = stored.write_bytes(gzip.compress(b"abc"))
    ...     read(DataFile("f", 3, hashlib.sha256(b"abc").hexdigest()), stored, cache=Path(here))
    b'abc'
    """
    try:
        if path.suffix != ".xz":
            return check(file, decompress(path, file.size), str(path))
        copy = cache / f"{_digest(path)}.bin"
        with contextlib.suppress(OSError, InvalidInput):  # no copy, or a damaged one: make it anew
            return check(file, decompress(copy, file.size), str(copy))
        content = check(file, decompress(path, file.size), str(path))
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error}.", hint="check the file's permissions and the disk"
        ) from None
    with contextlib.suppress(OSError, InvalidInput):  # the copy saves time and nothing else
        cache.mkdir(parents=True, exist_ok=True)
        _io.write(copy, content)
    return content


def check(file: DataFile, content: bytes, where: str, hint: str = "delete the file and get it again") -> bytes:
    """`content` itself if it is what the authors of `file` publish; otherwise an error that calls it `where`.

    >>> check(DataFile("f", 3, hashlib.sha256(b"abc").hexdigest()), b"abc", "f.gz")
    b'abc'
    """
    if len(content) == file.size and hashlib.sha256(content).hexdigest() == file.sha256:
        return content
    if len(content) > file.size:
        fault = f"holds more than the {file.size} bytes"
    elif len(content) < file.size:
        fault = f"holds {len(content)} of the {file.size} bytes"
    else:
        fault = "does not hold the bytes"
    raise InvalidInput(f"{where} {fault} that its authors publish.", hint=hint)


def decompress(path: Path, size: int) -> bytes:
    """At most `size` + 1 bytes of what `path` holds: one byte more shows that it is too long."""
    try:
        match path.suffix:
            case ".gz":
                with opened(path) as packed, gzip.open(packed) as stream:
                    return stream.read(size + 1)
            case ".xz":
                return _unxz(path, size + 1)
            case _:
                with opened(path) as plain:
                    return plain.read(size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError):
        raise InvalidInput(
            f"{path} is damaged: it does not decompress.", hint="delete the file and get it again"
        ) from None


def _unxz(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of an xz stream. `lzma.open` would let the file choose how much memory it takes."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    content = bytearray()
    with opened(path) as stream:
        while len(content) < limit and not decoder.eof:
            chunk = stream.read(1 << 20) if decoder.needs_input else b""
            if decoder.needs_input and not chunk:
                raise EOFError
            content += decoder.decompress(chunk, limit - len(content))
        if decoder.eof and (decoder.unused_data or stream.read(1)):
            raise EOFError
    return bytes(content)


def _digest(path: Path) -> str:
    with opened(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
