"""MNIST, Fashion-MNIST and CIFAR-10: their files, the digests of these, and how they turn into arrays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.data.base import Dataset
from noisette.data.files import DataFile, cache_folder, locate, read
from noisette.errors import InvalidInput

__all__ = ["PUBLISHED", "Published", "decode_cifar", "decode_idx"]

Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True)
class Published:
    """A data set that its authors publish as `files`, kept in the sub-folder `folder` of the data root."""

    name: str
    folder: str
    files: tuple[DataFile, ...]
    decode: Callable[[Sequence[bytes]], tuple[Part, Part]]
    classes: int = 10

    def load(self, root: Path, cache: Path | None = None) -> Dataset:
        """The data set, from ``root/folder``, with decompressed copies in `cache`."""
        folder = root / self.folder
        paths = [(file, locate(file, folder)) for file in self.files]
        missing = [file.name for file, path in paths if path is None]
        if missing:
            raise InvalidInput(
                f"{self.name} is not in {folder.absolute()}: {missing[0]} is missing, plain or as .gz or .xz.",
                hint=f"run `noisette data fetch {self.name}`, or say where it is with --data-root or NOISETTE_DATA",
            )
        copies = cache_folder() if cache is None else cache
        train, test = self.decode([read(file, path, copies) for file, path in paths if path is not None])
        return Dataset.from_arrays(self.name, train, test, classes=self.classes)


def decode_idx(contents: Sequence[bytes]) -> tuple[Part, Part]:
    """Images (N, 1, H, W) and labels (N,) from four idx files: training images and labels, then those of the test.

    >>> images, labels = struct.pack(">4i4B", 2051, 1, 2, 2, 9, 8, 7, 6), struct.pack(">2iB", 2049, 1, 5)
    >>> train, test = decode_idx([images, labels, images, labels])
    >>> train[0].tolist(), train[1].tolist()
    ([[[[9, 8], [7, 6]]]], [5])
    """
    arrays = []
    for content in contents:
        dimensions = content[3]  # the last byte of the magic number, big-endian sizes after it
        shape = struct.unpack_from(f">{dimensions}i", content, 4)
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())
    return (arrays[0][:, None], arrays[1]), (arrays[2][:, None], arrays[3])


def decode_cifar(contents: Sequence[bytes]) -> tuple[Part, Part]:
    """Images (N, 3, 32, 32) and labels (N,) from binary records; the last file is the test part.

    >>> train, test = decode_cifar([bytes([7]) + bytes(3072), bytes([2]) + bytes(3072)])
    >>> train[0].shape, int(train[1][0]), int(test[1][0])
    ((1, 3, 32, 32), 7, 2)
    """
    records = [np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in contents]
    return _records(np.concatenate(records[:-1])), _records(records[-1].copy())


def _records(records: npt.NDArray[np.uint8]) -> Part:
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _idx(name: str, digests: Sequence[str]) -> Published:
    sizes = {
        "train-images-idx3-ubyte": 16 + 60_000 * 28 * 28,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 28 * 28,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }
    files = tuple(DataFile(file, size, digest) for (file, size), digest in zip(sizes.items(), digests, strict=True))
    return Published(name, name, files, decode_idx)


_MNIST = _idx(
    "mnist",
    [
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ],
)
_FASHION = _idx(
    "fashion-mnist",
    [
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ],
)
_CIFAR = Published(
    "cifar10",
    "cifar-10",
    tuple(
        DataFile(name, 10_000 * 3073, digest)
        for name, digest in {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }.items()
    ),
    decode_cifar,
)

PUBLISHED = {published.name: published for published in (_MNIST, _FASHION, _CIFAR)}
