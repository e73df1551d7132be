"""The paper's curves and the Markdown of the page."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from experiments.tests.conftest import EXPERIMENTS
from noisette.errors import InvalidInput

Here = Callable[[str], ModuleType]


def test_examples(here: Here) -> None:
    for name in ("paper", "markdown"):
        found = doctest.testmod(here(name))
        assert found.attempted >= 2
        assert found.failed == 0


def test_every_file_has_finite_curves(here: Here) -> None:
    paper = here("paper")
    files = sorted(path.stem for path in (EXPERIMENTS / "paper").glob("*.csv"))
    assert len(files) == 10
    for file in files:
        for name in paper.series(file):
            x, y = paper.curve(file, name)
            assert len(x) == len(y) >= 6
            assert np.isfinite([x, y]).all()


def test_unknown_names_are_refused_with_those_that_exist(here: Here) -> None:
    with pytest.raises(InvalidInput, match="no series 'cauchy'") as refused:
        here("paper").curve("l1_distance", "cauchy")
    assert "laplace" in refused.value.hint
    with pytest.raises(InvalidInput, match="no figure 'l2'") as refused:
        here("paper").curve("l2", "cauchy")
    assert "l1_distance" in refused.value.hint


def test_bars_within_cells_are_escaped(here: Here) -> None:
    assert "| a \\| b |" in here("markdown").table(["x"], [["a | b"]])
