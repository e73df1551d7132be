"""``breast-cancer``: the table of breast tumours that comes with scikit-learn: 569 rows of 30 numbers, no download."""

from __future__ import annotations

from pathlib import Path

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.column_bounds import Bounds, scaled
from noisette.app.datasets.sources.base import Source
from noisette.app.datasets.sources.bundled import bundled, every_fifth

__all__ = ["BOUNDS", "BreastCancer"]

# Ten measures of the nuclei in a picture: bounds of their mean, of its standard error, and of the worst three nuclei.
_MEASURES = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 200), (0, 25), (40, 260)),
    "area": ((100, 2500), (0, 550), (100, 4500)),
    "smoothness": ((0.05, 0.2), (0, 0.04), (0.05, 0.25)),
    "compactness": ((0, 0.4), (0, 0.15), (0, 1.2)),
    "concavity": ((0, 0.5), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.2), (0, 0.06), (0, 0.3)),
    "symmetry": ((0.1, 0.3), (0, 0.08), (0.1, 0.7)),
    "fractal dimension": ((0.04, 0.1), (0, 0.03), (0.04, 0.21)),
}

BOUNDS: Bounds = {
    form.format(name): (float(bounds[which][0]), float(bounds[which][1]))
    for which, form in enumerate(("mean {}", "{} error", "worst {}"))
    for name, bounds in _MEASURES.items()
}
"""Round numbers about the ranges that the table's description publishes, which counts as public here."""


class BreastCancer(Source):
    """455 training and 114 test rows (N, 30), malignant (0) or benign (1), each column from its bounds to [-1, 1].

    Rows 0, 5, 10, ... in scikit-learn's order are the test part.

    >>> BreastCancer().load("", Path())
    Dataset(name='breast-cancer', train=455, test=114, shape=(30,), classes=2)
    """

    name = "breast-cancer"

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        bunch = bundled("breast_cancer")
        rows = scaled(bunch.data, list(bunch.feature_names), BOUNDS)
        return Dataset.from_arrays(
            self.name, *every_fifth(rows, bunch.target), labels=tuple(map(str, bunch.target_names))
        )
