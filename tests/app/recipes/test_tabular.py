"""The recipe tabular: a table of one's own or scikit-learn's, with a guarantee and an accuracy, in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from noisette.app.recipes import Recipe
from noisette.app.runs import load, start
from noisette.app.runs.metrics import Point


def trained(folder: Path, **changes: object) -> tuple[Point, Path]:
    opened = start(folder, Recipe.load("tabular").changed(**changes), seed=0)
    try:
        points = [point for point in opened.points() if point is not None]
    finally:
        opened.close()
    return points[-1], opened.folder


@pytest.mark.parametrize(("epsilon", "floor"), [(0.5, 0.85), (3.0, 0.91)])
def test_breast_cancer(tmp_path: Path, epsilon: float, floor: float) -> None:
    """Of 20 seeds the worst had 90.4% at epsilon 0.5 and 93.0% at 3; always saying benign has 61%."""
    point, folder = trained(tmp_path, epsilon=epsilon)
    assert point.accuracy is not None
    assert point.accuracy > floor
    assert 0.998 * epsilon <= point.epsilon <= epsilon
    promise = json.loads((folder / "guarantee.json").read_text())
    assert promise["delta"] == 1e-5
    assert promise["epsilon"] <= epsilon


def test_a_table_of_one_s_own(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    ages, doses = generator.uniform(0, 100, 600), generator.uniform(0, 0.01, 600)
    rows = [f"{a},{b},{'ill' if a / 100 > b * 100 else 'well'}" for a, b in zip(ages, doses, strict=True)]
    (tmp_path / "mine.csv").write_text("age,dose,kind\n" + "\n".join(rows))
    (tmp_path / "mine.bounds.toml").write_text("age = [0, 100]\ndose = [0, 0.01]\n")
    point, folder = trained(tmp_path, data=f"csv:{tmp_path / 'mine.csv'}:kind:0.2", epsilon=2.0)
    assert point.accuracy is not None
    assert point.accuracy > 0.85
    assert point.epsilon <= 2.0
    assert sum(p.numel() for p in load(folder).parameters()) == 6


def test_every_row_counts_in_every_step_of_a_small_table() -> None:
    assert Recipe.load("tabular").changed(epsilon=1.0).mechanism(62, 455).rate == 1.0
