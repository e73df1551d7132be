"""Public bounds of a table's columns: known beforehand, like an age of 0 to 120, and never read off the table."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisette import _io
from noisette._spec import real
from noisette.errors import InvalidInput

__all__ = ["Bounds", "beside", "centred", "file_beside", "pair", "scaled"]

Bounds = Mapping[str, tuple[float, float]]
"""The least and the largest value of every column by name."""


class _Read(dict[str, tuple[float, float]]):
    """Bounds that were read from `file`, so that errors about them can name it."""

    def __init__(self, found: Bounds, file: Path) -> None:
        super().__init__(found)
        self.file = file


def file_beside(path: Path) -> Path:
    """Where bounds of the table at `path` are looked for.

    >>> file_beside(Path("cells.csv")).name
    'cells.bounds.toml'
    """
    return path.with_suffix(".bounds.toml")


def beside(path: Path) -> Bounds | None:
    """The bounds in ``NAME.bounds.toml`` beside the table ``NAME.csv``, None where there is no such file.

    Every line of it gives one column, like ``age = [0, 120]``.

    >>> beside(Path("nowhere.csv")) is None
    True
    """
    file = file_beside(path)
    if not os.path.exists(file):
        return None
    found = _io.table(file)
    with _io.naming(file):
        return _Read({name: pair(name, value) for name, value in found.items()}, file)


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
    if names and len(missing) == len(names):  # the first line may be no header, but a row, which no error may quote
        about = f"in {bounds.file}, " if isinstance(bounds, _Read) else ""
        raise InvalidInput(
            f"{about}the bounds are of no column of the table.",
            hint="name the columns as the first line of the table does, which is to be a header",
        )
    if missing or len(bounds) > len(names):
        name = missing[0] if missing else next(name for name in bounds if name not in names)
        fault = f"column {name!r} has no bounds" if missing else f"there are bounds for {name!r}, which is not a column"
        hint = "give bounds for every column but the label, and for no other"
        if not isinstance(bounds, _Read):
            raise InvalidInput(f"{fault}.", hint=hint)
        line = f"write a line {_key(name)} = [LOW, HIGH] into it" if missing else f"take the line of {name!r} out of it"
        raise InvalidInput(f"in {bounds.file}, {fault}.", hint=f"{line}: {hint}")
    lower, upper = np.array([pair(name, bounds[name]) for name in names]).T
    return np.clip(centred(rows, lower, upper), -1.0, 1.0)


def _key(name: str) -> str:
    """`name` as TOML writes it before an equals sign."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def centred(
    values: npt.NDArray[np.float64], lower: float | npt.NDArray[np.float64], upper: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """`values`, with what lies between `lower` and `upper` brought to [-1, 1].

    >>> centred(np.array([60.0, 240.0]), 0.0, 120.0).tolist()
    [0.0, 3.0]
    """
    with np.errstate(over="ignore"):  # of what is cut off anyway
        return np.asarray((2 * values - lower - upper) / (upper - lower))
