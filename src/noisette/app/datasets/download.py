"""Bring published data sets from the addresses that their authors name, and hold every file to its SHA-256."""

from __future__ import annotations

import http.client
import io
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from noisette import _io
from noisette.app.datasets._published_files import DataFile, cache_folder, check, data_root, decompress, locate, read
from noisette.app.datasets.sources import Published, sources
from noisette.errors import InvalidInput

__all__ = ["fetch"]

Report = Callable[[str, int, int], None]

_CHUNK = 1 << 20
_SLACK = 1 << 20  # bytes that a compressed file, or an archive's own parts, may have on top of the files
_PATIENCE = 60.0  # seconds without an answer


def fetch(name: str, root: str | Path | None = None, report: Report | None = None) -> Path:
    """Put the files of data set `name` where `noisette.app.datasets.load` finds them, and return their folder.

    Files that are there already are checked and kept. ``report(label, done, total)`` is called as the work goes on; a
    total of 0 means that the length of the wait is not known.

    >>> fetch("digits")
    Traceback (most recent call last):
    ...
    noisette.errors.InvalidInput: there is nothing to fetch for 'digits'.
    <BLANKLINE>
    hint: these can be fetched: cifar10, fashion-mnist, mnist
    """
    source = sources().get(name)
    if not isinstance(source, Published):
        known = [one.name for one in sources().values() if isinstance(one, Published)]
        raise InvalidInput(f"there is nothing to fetch for {name!r}.", hint=f"these can be fetched: {', '.join(known)}")
    tell = report or (lambda *_: None)
    folder = data_root(root) / source.folder
    missing = []
    for done, file in enumerate(source.files):
        tell(f"checking {file.name}", done, len(source.files))
        path = locate(file, folder)
        if path is None:
            missing.append(file)
        else:
            read(file, path, cache_folder())
    if missing:
        names = ", ".join(file.name for file in missing)
        by_hand = f"check the network, or put {names} (plain, .gz or .xz) in {folder.absolute()} by hand"
        come = _single if source.address.endswith("/") else _archive
        with tempfile.TemporaryDirectory(prefix="noisette-") as here:
            for file, content in come(source, missing, Path(here), tell, by_hand):
                _put(folder / file.name, content)
    tell(f"{name} is complete", len(source.files), len(source.files))
    return folder


Arrivals = Iterator[tuple[DataFile, bytes]]


def _single(source: Published, missing: list[DataFile], here: Path, tell: Report, hint: str) -> Arrivals:
    """Files that are published one by one, each as .gz; those that came stay when a later one does not."""
    for file in missing:
        address = f"{source.address}{file.name}.gz"
        path = _download(address, file.size + _SLACK, here / f"{file.name}.gz", tell, hint)
        with _damaged(address, hint):
            content = decompress(path, file.size)
        yield file, check(file, content, address, hint)


def _archive(source: Published, missing: list[DataFile], here: Path, tell: Report, hint: str) -> Arrivals:
    """Files out of one .tar.gz, read in place: nothing in the archive chooses a path to write to."""
    limit = sum(file.size for file in source.files) + _SLACK
    path = _download(source.address, limit, here / "archive.gz", tell, hint)
    found: dict[str, bytes] = {}
    with _damaged(source.address, hint):
        unpacked = io.BytesIO(decompress(path, limit))  # no further than its files are long, then looked into
        archive = tarfile.open(fileobj=unpacked, mode="r:")  # noqa: SIM115 - holds nothing but memory
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                found.setdefault(PurePosixPath(member.name).name, stream.read())
    for file in missing:
        yield file, check(file, found.get(file.name, b""), f"{file.name} of {source.address}", hint)


@contextmanager
def _damaged(address: str, hint: str) -> Iterator[None]:
    """What came from `address` is unpacked inside."""
    try:
        yield
    except (InvalidInput, tarfile.TarError, ValueError, OverflowError):
        raise InvalidInput(f"what {address} sent does not unpack.", hint=hint) from None


def _put(path: Path, content: bytes) -> None:
    hint = "choose another place with --data-root"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path.parent.absolute()} cannot be made ({_io.reason(error)}).", hint=hint) from None
    _io.write(path, content, hint=hint)


def _download(address: str, limit: int, path: Path, tell: Report, hint: str) -> Path:
    """What is at `address`, in the file `path`; no more than `limit` bytes of it."""
    label = f"downloading {address.rpartition('/')[2]}"
    tell(label, 0, 0)
    request = urllib.request.Request(address, headers={"User-Agent": "noisette"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer, path.open("wb") as file:
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while done <= limit and (chunk := answer.read(_CHUNK)):
                file.write(chunk)
                done += len(chunk)
                tell(label, done, total)
    except (OSError, http.client.HTTPException, ValueError) as error:  # urllib's own errors are OSErrors
        raise InvalidInput(f"{address} cannot be fetched ({_reason(error)}).", hint=hint) from None
    if done > limit:
        raise InvalidInput(f"{address} is larger than what its authors publish.", hint=hint)
    if done < total:
        raise InvalidInput(f"{address} broke off after {done} of {total} bytes.", hint=hint)
    return path


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words on one line."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is an answer as well, with a connection
        return f"status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return _io.reason(cause) if isinstance(cause, OSError) and cause.strerror else type(cause).__name__
