"""``mnist``: handwritten digits, 70,000 images of 28x28; and what other data sets of its form share with it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from noisette.app.datasets._published_files import DataFile
from noisette.app.datasets.sources.published import Part, Published

__all__ = ["Mnist", "decode_idx", "like_mnist"]


def like_mnist(*digests: str) -> tuple[DataFile, ...]:
    """The four files with MNIST's names and sizes, and these SHA-256.

    >>> like_mnist("a", "b", "c", "d")[3]
    DataFile(name='t10k-labels-idx1-ubyte', size=10008, sha256='d')
    """
    sizes = {
        "train-images-idx3-ubyte": 16 + 60_000 * 28 * 28,
        "train-labels-idx1-ubyte": 8 + 60_000,
        "t10k-images-idx3-ubyte": 16 + 10_000 * 28 * 28,
        "t10k-labels-idx1-ubyte": 8 + 10_000,
    }
    return tuple(DataFile(name, size, digest) for (name, size), digest in zip(sizes.items(), digests, strict=True))


class Mnist(Published):
    """60,000 training and 10,000 test images (N, 1, 28, 28) of ten digits."""

    name = "mnist"
    folder = "mnist"
    address = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # PyTorch's copy: the author's own site refuses programs
    files = like_mnist(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )

    def decode(self, contents: Sequence[bytes]) -> tuple[Part, Part]:
        return decode_idx(contents)


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
