"""The handwritten digits that come with scikit-learn: 1,797 images of 8x8, no download."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from noisette.data.base import Dataset

__all__ = ["digits"]


def digits() -> Dataset:
    """1,437 training and 360 test images (N, 1, 8, 8) of ten digits, scaled to [0, 1].

    Images 0, 5, 10, ... in scikit-learn's order are the test part.

    >>> digits()
    Dataset(name='digits', train=1437, test=360, shape=(1, 8, 8), classes=10)
    """
    bunch = load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, None]  # sixteen grey levels
    test = np.arange(len(images)) % 5 == 0
    train_part, test_part = (images[~test], bunch.target[~test]), (images[test], bunch.target[test])
    return Dataset.from_arrays("digits", train_part, test_part, classes=10)
