"""``diabetes``: the table of diabetes patients that comes with scikit-learn: 442 rows of 10 numbers, no download."""

from __future__ import annotations

from pathlib import Path

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.column_bounds import Bounds, scaled
from noisette.app.datasets.sources.base import Source
from noisette.app.datasets.sources.bundled import bundled, every_fifth
from noisette.errors import InvalidInput

__all__ = ["BOUNDS", "Diabetes"]

BOUNDS: Bounds = {
    "age": (18, 90),
    "sex": (1, 2),
    "bmi": (15, 45),
    "bp": (60, 140),
    "s1": (90, 310),
    "s2": (40, 250),
    "s3": (20, 100),
    "s4": (2, 10),
    "s5": (3, 7),
    "s6": (50, 130),
}
"""Round numbers about what such measures of adults are."""


class Diabetes(Source):
    """353 training and 89 test rows (N, 10), and how far the disease has come a year later, a number.

    Rows 0, 5, 10, ... in scikit-learn's order are the test part; each column goes from its bounds to [-1, 1].

    >>> Diabetes().load_columns("", "", (0.0, 400.0))
    Dataset(name='diabetes', train=353, test=89, shape=(10,), target_bounds=(0.0, 400.0))
    """

    name = "diabetes"

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        raise InvalidInput(
            "the data set 'diabetes' has a number to predict, and no labels.",
            hint="learn it with --task regression --target-bounds 0,400, as the recipe regression does",
        )

    def load_columns(self, rest: str, unit: str, target_bounds: tuple[float, float] | None) -> Dataset:
        if unit or target_bounds is None:
            return super().load_columns(rest, unit, None)
        bunch = bundled("diabetes", scaled=False)
        rows = scaled(bunch.data, list(bunch.feature_names), BOUNDS)
        return Dataset.from_arrays(self.name, *every_fifth(rows, bunch.target), target_bounds=target_bounds)
