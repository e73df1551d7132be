"""Folders of images, one folder for every class."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisette._regular import opened
from noisette.errors import InvalidInput, MissingExtra

try:
    from PIL import Image
except ImportError:
    raise MissingExtra.of("Pillow", extra="images") from None

__all__ = ["class_names", "read"]

_SUFFIXES = (".jpeg", ".jpg", ".png")
# What Pillow calls the pixels of a file, and as what they are read. Sixteen-bit and CMYK files are left out: turning
# them into bytes is a choice for whoever made them.
_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGB"}


def class_names(part: Path) -> tuple[str, ...]:
    """Names of the folders under `part`, sorted: the classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     Path(here, "dog").mkdir(), Path(here, "cat").mkdir()
    ...     class_names(Path(here))
    (None, None)
    ('cat', 'dog')
    """
    if not part.is_dir():
        raise InvalidInput(f"there is no folder {part}.", hint="put images in train/CLASS/ and test/CLASS/")
    names = tuple(sorted(entry.name for entry in part.iterdir() if entry.is_dir() and not entry.name.startswith(".")))
    if not names:
        raise InvalidInput(f"{part} has no folder in it.", hint="make one folder for every class, with its images")
    return names


def read(part: Path, names: tuple[str, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (N, C, H, W) and labels (N,) of ``part/CLASS/*``, where CLASS is one of `names`, sorted by file name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     Path(here, "cat").mkdir()
    ...     Image.new("L", (5, 4)).save(Path(here, "cat", "tom.png"))
    ...     read(Path(here), ("cat",))[0].shape
    (1, 1, 4, 5)
    """
    unknown = set(class_names(part)) - set(names)
    if unknown:
        raise InvalidInput(
            f"{part} has a class {min(unknown)!r} that is not among the training classes.",
            hint=f"the classes are {', '.join(names)}",
        )
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        for file in _files(part / name):
            image = _image(file)
            if images and image.shape != images[0].shape:
                raise InvalidInput(
                    f"{file} is {_size(image)} where the images before it are {_size(images[0])}.",
                    hint="bring all images to one size and one number of channels",
                )
            images.append(image)
            labels.append(label)
    if not images:
        raise InvalidInput(f"{part} holds no image.", hint="put PNG or JPEG files in its class folders")
    return np.stack(images), np.array(labels, dtype=np.int64)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []  # a test part need not have every class
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for file in files:
        if not file.is_file() or file.suffix.lower() not in _SUFFIXES:
            raise InvalidInput(f"{file} is neither a PNG nor a JPEG file.", hint="move it out of the class folder")
    return files


def _image(file: Path) -> npt.NDArray[np.uint8]:
    """Pixels (C, H, W) of one file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with opened(file) as stream, Image.open(stream, formats=("PNG", "JPEG")) as image:
                mode = _MODES.get(image.mode)
                pixels = None if mode is None else np.asarray(image.convert(mode))
    except Exception:  # noqa: BLE001 - of a damaged picture the decoders raise whatever comes
        raise InvalidInput(f"{file} is not an image that can be read.", hint="save it again as PNG") from None
    if pixels is None:
        raise InvalidInput(f"{file} has a pixel format other than grey or RGB of 8 bits.", hint="save it as RGB PNG")
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size(image: npt.NDArray[np.uint8]) -> str:
    return "x".join(str(n) for n in image.shape)
