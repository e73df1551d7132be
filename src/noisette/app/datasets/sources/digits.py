"""``digits``: the handwritten digits that come with scikit-learn, 1,797 images of 8x8, no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.sources.base import Source
from noisette.app.datasets.sources.bundled import bundled, every_fifth

__all__ = ["Digits"]


class Digits(Source):
    """1,437 training and 360 test images (N, 1, 8, 8) of ten digits, scaled to [0, 1].

    Images 0, 5, 10, ... in scikit-learn's order are the test part.

    >>> Digits().load("", Path())
    Dataset(name='digits', train=1437, test=360, shape=(1, 8, 8), classes=10)
    """

    name = "digits"

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        bunch = bundled("digits")
        images = (bunch.images / 16).astype(np.float32)[:, None]  # sixteen grey levels
        return Dataset.from_arrays(self.name, *every_fifth(images, bunch.target), classes=10)
