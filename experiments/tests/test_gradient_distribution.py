"""What is measured of gradients, on laws whose numbers are known, and that a rerun fills only gaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

Here = Callable[[str], ModuleType]


@pytest.fixture(name="measure")
def _measure(here: Here) -> Callable[[torch.Tensor], dict[str, float]]:
    function: Callable[[torch.Tensor], dict[str, float]] = here("gradient_distribution").measure
    return function


@pytest.mark.research
def test_gaussian_gradients(measure: Callable[[torch.Tensor], dict[str, float]]) -> None:
    """A seeded sample of 400,000 values: the standard deviation of its kurtosis is 0.008."""
    found = measure(torch.from_numpy(np.random.default_rng(0).normal(size=(40, 10_000))))
    assert found["kurtosis"] == pytest.approx(3, abs=0.05)
    assert found["kurtosis_of_one"] == pytest.approx(3, abs=0.1)
    assert found["beyond_6"] == 0
    assert found["zeros"] == 0
    assert found["kept_half_normal"] > 0.98
    assert found["kept_empirical"] > 0.98


@pytest.mark.research
def test_laplace_gradients_with_zeros(measure: Callable[[torch.Tensor], dict[str, float]]) -> None:
    """Laplace values have kurtosis 6; with a quarter of them zero it is 8.

    Six deviations are 6 sqrt(1.5) scales then: 193 of 400,000 values are beyond, give or take 14.
    """
    rng = np.random.default_rng(1)
    rows = rng.laplace(size=(40, 10_000)) * (np.arange(10_000) % 4 != 0)
    found = measure(torch.from_numpy(rows))
    assert found["zeros"] == 0.25
    assert found["kurtosis"] == pytest.approx(8, rel=0.03)
    assert found["kurtosis_of_one"] == pytest.approx(8, rel=0.1)
    assert found["beyond_6"] == pytest.approx(0.75 * math.exp(-6 * math.sqrt(1.5)), rel=0.3)
    assert found["kept_half_normal"] < 0.95 < found["kept_empirical"]


def test_what_is_kept_is_small_and_adds_up(here: Here) -> None:
    figure = here("gradient_distribution")
    assert figure.KEPT.path.stat().st_size < 20_000
    for point in figure.points().values():
        inside = sum(np.array(point["histogram"]) * np.diff(figure.EDGES))
        assert inside + point["beyond_6"] == pytest.approx(1, abs=1e-3)
        profile = np.array(point["profile"])
        assert (np.diff(profile) <= 0).all()
        assert point["dim"] < 200_000
        assert profile[0] < math.sqrt(point["dim"])


@pytest.mark.research
def test_a_rerun_fills_only_gaps(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, kept = here("gradient_distribution"), here("kept")
    monkeypatch.setattr(figure, "MODELS", {"digits": ("digits_cnn", {})})
    monkeypatch.setattr(figure, "NAMES", {"digits": "digits"})
    monkeypatch.setattr(figure, "EPOCHS", 1)
    monkeypatch.setattr(figure, "EXAMPLES", 16)
    monkeypatch.setattr(figure, "KEPT", kept.Kept("gradients", tmp_path))
    told: list[str] = []
    figure.fill(lambda what, _done, _total: told.append(what))
    first = figure.KEPT.points
    assert [(point["data"], point["epochs"]) for point in first] == [("digits", 0), ("digits", 1)]
    assert any("without privacy" in what for what in told)
    told.clear()
    figure.fill(lambda what, _done, _total: told.append(what))
    assert told == ["done"]
    figure.KEPT.path.write_text(kept.text(first[:1]))
    figure.fill(lambda _what, _done, _total: None)
    assert figure.KEPT.points == first  # the same seed, so the same gradients
