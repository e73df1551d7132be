"""``digits``: the handwritten digits that come with scikit-learn, 1,797 images of 8x8, no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.data.base import Dataset
from noisette.data.sources.base import Source
from noisette.errors import MissingExtra

__all__ = ["Digits", "every_fifth"]

Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class Digits(Source):
    """1,437 training and 360 test images (N, 1, 8, 8) of ten digits, scaled to [0, 1].

    Images 0, 5, 10, ... in scikit-learn's order are the test part.

    >>> Digits().load("", Path())
    Dataset(name='digits', train=1437, test=360, shape=(1, 8, 8), classes=10)
    """

    name = "digits"

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        try:
            from sklearn.datasets import load_digits  # noqa: PLC0415 - scikit-learn takes a second to import
        except ImportError:
            raise MissingExtra.of("scikit-learn", extra="sklearn") from None

        bunch = load_digits()
        images = (bunch.images / 16).astype(np.float32)[:, None]  # sixteen grey levels
        return Dataset.from_arrays(self.name, *every_fifth(images, bunch.target), classes=10)


def every_fifth(inputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> tuple[Part, Part]:
    """Examples (N, ...) with labels (N,), cut into a training and a test part: 0, 5, 10, ... are the test.

    >>> [part.tolist() for part, _ in every_fifth(np.arange(7), np.arange(7))]
    [[1, 2, 3, 4, 6], [0, 5]]
    """
    test = np.arange(len(inputs)) % 5 == 0
    return (inputs[~test], targets[~test]), (inputs[test], targets[test])
