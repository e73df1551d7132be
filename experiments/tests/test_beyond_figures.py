"""The figures beyond the paper: every number and every verdict is read from what is kept."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisette.app import datasets
from noisette.app.recipes import Recipe

RUNS = {"L2, Gaussian": [90.0, 90.4, 90.2], "half-normal": [90.5, 90.6, 90.9], "L2, KS": [80.0, 81.0, 89.9]}


def _write(copy: Path, name: str, points: list[dict[str, Any]]) -> None:
    (copy / "results" / f"{name}.json").write_text(json.dumps(points))


def _runs(ends: dict[str, list[float]], task: str = "mnist") -> list[dict[str, Any]]:
    return [
        {"kind": "run", "task": task, "way": way, "lr": 200.0, "seed": seed, "accuracy": right / 100}
        for way, found in ends.items()
        for seed, right in enumerate(found)
    ]


def _trial(lr: float, right: float) -> dict[str, Any]:
    return {"kind": "trial", "task": "mnist", "way": "half-normal", "lr": lr, "seed": 0, "accuracy": right}


# -- comparison --------------------------------------------------------------------------------------------------------


@pytest.mark.research
def test_a_way_wins_only_beyond_the_spread_of_seeds(copy: Path) -> None:
    comparison = importlib.import_module("comparison")
    _write(copy, "comparison", _runs(RUNS | {"tails": [90.3, 95.0, 96.0]}))
    found = {way: comparison.against("mnist", way) for way in (*RUNS, "tails")}
    assert found == {"L2, Gaussian": "ties", "half-normal": "wins", "L2, KS": "loses", "tails": "ties"}


@pytest.mark.research
def test_the_verdicts_follow_the_runs(copy: Path) -> None:
    comparison = importlib.import_module("comparison")
    all_ways = comparison.ways(comparison.TASKS["mnist"])
    worse = {way: [80.0, 81.0, 82.0] for way in all_ways} | {"L2, Gaussian": RUNS["L2, Gaussian"]}
    _write(copy, "comparison", _runs(worse))
    paper, some = comparison.claims()
    assert paper.verdict.startswith("does not hold")
    assert some.verdict.startswith("does not hold")
    assert "MNIST, linear 81.00" in paper.ours
    assert "90.20" in paper.ours
    _write(copy, "comparison", _runs(worse | {comparison.PAPER: [95.0, 95.5, 96.0]}))
    paper, some = comparison.claims()
    assert paper.verdict.startswith("holds")
    assert some.verdict.startswith("partly")
    assert some.ours == "the paper's (MNIST, linear)"


@pytest.mark.research
def test_a_task_is_shown_when_all_of_its_runs_are_there(copy: Path) -> None:
    comparison = importlib.import_module("comparison")
    points = _runs({way: [1.0, 2.0, 3.0] for way in comparison.ways(comparison.TASKS["mnist"])})
    _write(copy, "comparison", points[:-1])
    assert comparison.done() == []
    _write(copy, "comparison", points)
    assert comparison.done() == ["mnist"]


@pytest.mark.research
@pytest.mark.parametrize(("best", "rate"), [(200.0, 200.0), (400.0, 400.0)])
def test_the_best_rate_is_taken_from_trials_that_are_there(copy: Path, best: float, rate: float) -> None:
    """No example is read: all trials that the rule asks for are kept already."""
    trials = importlib.import_module("beyond.trials")
    kept = importlib.import_module("kept").Kept("comparison")
    _write(copy, "comparison", [_trial(lr, 0.9 if lr == best else 0.8) for lr in (100.0, 200.0, 400.0, 800.0)])
    assert trials.tuned(kept, "mnist", "half-normal", lambda _: None) == rate


@pytest.mark.research
def test_a_run_has_the_denoiser_of_its_recipe(copy: Path) -> None:
    """A denoiser that is lost on the way would leave both alike: the seed is the same."""
    common = importlib.import_module("beyond.common")
    data = datasets.load("digits")
    train, held = (data.train_inputs, data.train_targets), (data.test_inputs, data.test_targets)
    found, stepped = [], []
    for denoiser in ("Identity()", "LowPass(beta=0.99)"):
        recipe = Recipe.load("digits").changed(noise="Gaussian(scale=20.0)", steps=4, denoiser=denoiser)
        dim = 64 * 64 + 64 + 64 * 10 + 10
        found.append(common.one_run(recipe, recipe.mechanism(dim, 1437), train, held, 0, stepped.append))
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1] > 0
    assert stepped == [1, 2, 3, 4] * 2


# -- few numbers -------------------------------------------------------------------------------------------------------


def test_what_is_measured_is_what_the_noise_says(copy: Path) -> None:
    """At epsilon 1 no noise reaches the bounds. The bar is five standard errors of a root mean square."""
    points = json.loads((copy / "results" / "few_numbers.json").read_text())
    checked = [point for point in points if point.get("epsilon") == 1.0]
    assert len(checked) == 32
    excess = {"gaussian": 0.0, "laplace": 3.0, "power": 0.8, "student_t": 1.2}  # kurtosis, less that of a Gaussian
    for point in checked:
        draws = point["seeds"] * point["columns"]
        bar = 5 * np.sqrt((2 + excess[point["law"]]) / (4 * draws))
        assert abs(point["measured"] / point["std"] - 1) < bar, point


@pytest.mark.research
def test_the_winner_is_read_from_the_points(copy: Path) -> None:
    figure = importlib.import_module("few_numbers")
    assert figure.claims()[0].verdict.startswith("holds")
    assert figure.best(1.0, 1)[0] == "Laplace"
    points = json.loads((copy / "results" / "few_numbers.json").read_text())
    for point in points:
        if point["law"] in ("laplace", "power", "student_t"):
            point["std"] *= 10
    _write(copy, "few_numbers", points)
    assert figure.claims()[0].verdict.startswith("does not hold")
    assert "| 1 | 1 | 0.82 / " in figure.section()
