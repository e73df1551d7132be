"""CIFAR-10 at full length: shows what is there, says how much that is, and trains nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.research


def _rates(names: tuple[str, ...]) -> None:
    """Keep made-up held-out runs of three rates, of which the first is the best."""
    rates, series = importlib.import_module("rates"), importlib.import_module("series")
    training = importlib.import_module("training")
    points: list[dict[str, Any]] = []
    for name in names:
        trial = series.SERIES[name].trial()
        for factor, right in ((1.0, 52.0), (2.0, 51.0), (0.5, 50.0)):
            point = training.key(trial.changed(lr=trial.lr * factor), 0)
            points.append(point | {"accuracy": right, "cpu_seconds": 660.0, "commit": "0123456789"})
    rates.KEPT.rewrite(points)


def _run(
    name: str, end: float, seed: int = 0, faster: float = 1.0, scale: float | None = None, epsilon: float = 4.1
) -> None:
    """Keep a made-up run, of the headline if no scale is given: numbers to be found again, not results."""
    training, series = importlib.import_module("training"), importlib.import_module("series")
    curve = [(step, round(end - 4000 / step, 2)) for step in (195, 975, 1950, 4875, 9750, 19531)]
    recipe = series.SERIES[name].recipe(scale or series.SERIES[name].headline, series.FULL)
    point = training.key(recipe.changed(lr=recipe.lr * faster), seed)
    point |= {"parameters": 34_930, "accuracy": curve[-1][1], "curve": curve, "cpu_seconds": 2400.0}
    training.RUNS.add(point | {"epsilon_rdp": epsilon, "epsilon_pld": 3.4})


@pytest.fixture
def empty(copy: Path) -> Path:
    """A copy of the experiments with no run at full length."""
    for name in ("long_rates", "long_best"):
        (copy / "results" / f"{name}.json").unlink(missing_ok=True)
    path = copy / "results" / "runs.json"
    path.write_text(json.dumps([run for run in json.loads(path.read_text()) if run["steps"] != 19531]))
    return copy


def test_without_runs_it_shows_the_paper_and_claims_nothing(empty: Path) -> None:
    figure = importlib.import_module("full_length")
    (empty / "results" / "full_length.png").unlink()
    figure.draw()
    assert (empty / "results" / "full_length.png").stat().st_size > 10_000
    assert figure.claims() == []
    assert "0 of 15 runs are there, 0 of 3 learning rates are chosen" in figure.section()


def test_it_counts_and_shows_what_is_there(empty: Path) -> None:
    figure = importlib.import_module("full_length")
    _rates(("encoded_student_t", "dpsgd"))
    assert "0 of 15 runs are there, 2 of 3 learning rates are chosen" in figure.section()
    assert "| DPSGD, tuned rate | 0.25, best | 52.00 | 11.0 | 0123456789 |" in figure.section()
    _run("encoded_student_t", 58.0)
    (back,) = figure.claims()
    assert back.verdict == "holds: +1.24 points against the curve"
    _run("dpsgd", 55.0)
    _run("dpsgd", 56.0, seed=1)
    section = figure.section()
    assert "3 of 15 runs are there" in section
    assert "| 0.125 | 4.100 | 3.400 | 55.30 (54.80 to 55.80, 2 seeds) |" in section
    _run("dpsgd", 50.0, faster=2.0)  # shown beside the others, and no part of them
    assert "3 of 15 runs are there" in figure.section()
    assert "| 0.25 | 4.100 | 3.400 | 49.80 |" in figure.section()
    assert "| 0.125 | 4.100 | 3.400 | 55.30 (54.80 to 55.80, 2 seeds) |" in figure.section()
    _, ahead, faster = figure.claims()
    assert ahead.verdict == "holds: +2.50 points"
    assert faster.verdict == "holds"
    assert faster.ours == "1,950 against 4,875"
    assert faster.paper == "6,630 against 9,555"


def test_verdicts_follow_the_numbers(empty: Path) -> None:
    figure = importlib.import_module("full_length")
    _rates(("encoded_student_t", "encoded_gaussian", "dpsgd"))
    for name, end in {"encoded_student_t": 55.0, "encoded_gaussian": 57.0, "dpsgd": 56.0}.items():
        _run(name, end)
    assert "DPSGD against encoded Gaussian noise with KS: -1.00 points at 1.1." in figure.section()
    *back, student, gaussian, faster = figure.claims()
    assert [one.verdict.partition(":")[0] for one in back] == ["does not hold", "holds"]
    assert student.verdict == "does not hold: -1.00 points"
    assert gaussian.verdict == "holds: +1.00 points"
    assert faster.verdict == "does not hold"


def test_what_is_beyond_the_end_of_the_curve_is_not_compared_with_it(empty: Path) -> None:
    figure = importlib.import_module("full_length")
    _rates(("encoded_gaussian",))
    _run("encoded_gaussian", 56.0)
    _run("encoded_gaussian", 40.0, scale=0.7, epsilon=11.5)
    assert "| 0.7 | 40 | 11.500 | 3.400 | 39.80 | 56.30 at 7.10 |" in figure.section()
    (back,) = figure.claims()
    assert back.ours == "55.80% at epsilon 4.10"
    assert back.verdict == "holds: +0.51 points against the curve"


def test_the_budget_that_an_accuracy_needs(empty: Path) -> None:
    figure = importlib.import_module("full_length")
    found = {"encoded_student_t": (54.9, 55.0, 57.0), "dpsgd": (50.0, 53.0, 54.9)}
    figure.KEPT.rewrite(
        [
            {"series": name, "budget": budget, "accuracy": right}
            for name, best in found.items()
            for budget, right in zip((1.5, 2.0, 2.5), best, strict=True)
        ]
    )
    (thrifty,) = figure.claims()
    assert thrifty.ours == "epsilon 2 against above 9.5"
    assert thrifty.verdict == "holds"


def test_filling_searches_and_trains_nothing(empty: Path) -> None:
    figure, training = importlib.import_module("full_length"), importlib.import_module("training")
    _rates(("dpsgd",))
    _run("dpsgd", 56.0)
    before = training.RUNS.path.read_bytes()
    figure.fill(lambda *_: None)
    assert training.RUNS.path.read_bytes() == before
    found = {point["budget"]: point for point in figure.KEPT.points}
    assert found[9.5]["accuracy"] == 55.8
    assert found[1.5]["accuracy"] < found[9.5]["accuracy"]
    assert all(point["epsilon"] <= budget for budget, point in found.items())
    section = figure.section()
    assert f"| DPSGD, tuned rate | {found[1.5]['accuracy']:.2f} | {found[2.5]['accuracy']:.2f} |" in section
    assert "| the paper's `dpsgd` | 46.04 | 52.18 |" in section
    assert "| the paper's `encoded_gaussian` |" not in section
    figure.draw()
