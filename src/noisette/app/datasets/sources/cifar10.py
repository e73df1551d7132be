"""``cifar10``: photographs of ten kinds of things, 60,000 images of 32x32 in colour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from noisette.app.datasets._published_files import DataFile
from noisette.app.datasets.sources.published import Part, Published

__all__ = ["Cifar10", "decode_cifar"]

_DIGESTS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


class Cifar10(Published):
    """50,000 training and 10,000 test images (N, 3, 32, 32) of ten kinds of things."""

    name = "cifar10"
    folder = "cifar-10"
    address = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    files = tuple(DataFile(name, 10_000 * 3073, digest) for name, digest in _DIGESTS.items())

    def decode(self, contents: Sequence[bytes]) -> tuple[Part, Part]:
        return decode_cifar(contents)


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
