"""What the tables that come with scikit-learn share: how they are opened, and which part of them is the test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.errors import MissingExtra

__all__ = ["bundled", "every_fifth"]

Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def bundled(name: str, **options: Any) -> Any:
    """scikit-learn's own table of this `name`, as it hands it out.

    >>> bundled("digits").data.shape
    (1797, 64)
    """
    try:
        from sklearn import datasets  # noqa: PLC0415 - takes a second to import
    except ImportError:
        raise MissingExtra.of("scikit-learn", extra="sklearn") from None

    return getattr(datasets, f"load_{name}")(**options)


def every_fifth(inputs: npt.NDArray[Any], targets: npt.NDArray[Any]) -> tuple[Part, Part]:
    """Examples (N, ...) with labels (N,), cut into a training and a test part: 0, 5, 10, ... are the test.

    >>> [part.tolist() for part, _ in every_fifth(np.arange(7), np.arange(7))]
    [[1, 2, 3, 4, 6], [0, 5]]
    """
    test = np.arange(len(inputs)) % 5 == 0
    return (inputs[~test], targets[~test]), (inputs[test], targets[test])
