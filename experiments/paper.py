"""The paper's own curves: the numbers behind its figures, one CSV per figure, as its source gives them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisette.errors import InvalidInput

__all__ = ["curve", "series"]

_FOLDER = Path(__file__).parent / "paper"


def curve(file: str, name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Columns two and three of one series: `curve("l1_distance", "laplace")` gives D2 (n,) and the L1 error (n,).

    >>> d2, error = curve("l1_distance", "gaussian")
    >>> float(d2[0]), float(error[0].round(3))
    (0.399, 14.36)
    """
    rows = [row for row in _rows(file) if row[0] == name]
    if not rows:
        raise InvalidInput(f"{file}.csv has no series {name!r}.", hint=f"it has {', '.join(series(file))}")
    values = np.array([[float(cell) for cell in row[1:3]] for row in rows])
    return values[:, 0], values[:, 1]


def series(file: str) -> list[str]:
    """Names of the series in a figure, in its order.

    >>> series("l1_distance")
    ['gaussian', 'student_t', 'laplace']
    """
    return list(dict.fromkeys(row[0] for row in _rows(file)))


def _rows(file: str) -> list[list[str]]:
    path = _FOLDER / f"{file}.csv"
    if not path.is_file():
        known = sorted(found.stem for found in _FOLDER.glob("*.csv"))
        raise InvalidInput(f"the paper has no figure {file!r}.", hint=f"choose one of {', '.join(known)}")
    with path.open(newline="") as lines:
        return list(csv.reader(lines))[1:]
