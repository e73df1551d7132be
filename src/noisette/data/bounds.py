"""Public bounds of a table's columns: known beforehand, like an age of 0 to 120, and never read off the table."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisette import files
from noisette.errors import InvalidInput
from noisette.spec import real

__all__ = ["Bounds", "beside", "centred", "pair", "scaled"]

Bounds = Mapping[str, tuple[float, float]]
"""The least and the largest value of every column by name."""


def beside(path: Path) -> Bounds | None:
    """The bounds in ``NAME.bounds.toml`` beside the table ``NAME.csv``, None where there is no such file.

    Every line of it gives one column, like ``age = [0, 120]``.

    >>> beside(Path("nowhere.csv")) is None
    True
    """
    file = path.with_suffix(".bounds.toml")
    if not os.path.exists(file):
        return None
    found = files.table(file)
    with files.naming(file):
        return {name: pair(name, value) for name, value in found.items()}


def pair(name: str, value: object) -> tuple[float, float]:
    """The least and the largest value of the column `name`.

    >>> pair("age", [0, 120])
    (0.0, 120.0)
    """
    ends = tuple(real(f"a bound of {name!r}", one) for one in value) if isinstance(value, tuple | list) else ()
    if len(ends) != 2 or not 0 < ends[1] - ends[0] < math.inf:
        raise InvalidInput(f"the bounds of {name!r} are not a range.", hint="write the least and the largest: [0, 120]")
    return ends[0], ends[1]


def scaled(rows: npt.NDArray[np.float64], names: Sequence[str], bounds: Bounds) -> npt.NDArray[np.float64]:
    """Rows (N, F) of the columns `names`, each brought from its bounds to [-1, 1]; what lies outside is cut off.

    >>> scaled(np.array([[60.0], [150.0]]), ["age"], {"age": (0.0, 120.0)}).tolist()
    [[0.0], [1.0]]
    """
    missing = [name for name in names if name not in bounds]
    if missing or len(bounds) > len(names):
        name = missing[0] if missing else next(name for name in bounds if name not in names)
        raise InvalidInput(
            f"column {name!r} has no bounds." if missing else f"there are bounds for {name!r}, which is not a column.",
            hint="give bounds for every column but the label, and for no other",
        )
    lower, upper = np.array([pair(name, bounds[name]) for name in names]).T
    return np.clip(centred(rows, lower, upper), -1.0, 1.0)


def centred(
    values: npt.NDArray[np.float64], lower: float | npt.NDArray[np.float64], upper: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """`values`, with what lies between `lower` and `upper` brought to [-1, 1].

    >>> centred(np.array([60.0, 240.0]), 0.0, 120.0).tolist()
    [0.0, 3.0]
    """
    with np.errstate(over="ignore"):  # of what is cut off anyway
        return np.asarray((2 * values - lower - upper) / (upper - lower))
