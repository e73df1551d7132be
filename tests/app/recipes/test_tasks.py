"""A recipe learns a class or a number: losses and measures are those of scikit-learn, and numbers have their units."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error

from noisette.app.datasets import Dataset
from noisette.app.recipes import Recipe
from noisette.app.recipes.tasks import Classification, Regression, Scale, task_of
from noisette.app.runs import RunBuilder, load, start
from tests.support.helpers import refused

LOW, HIGH = -40.0, 80.0
RNG = np.random.default_rng(0)
NUMBERS = Recipe.load("regression").changed(target_bounds=(LOW, HIGH))


def table(path: Path, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A table in `path` of numbers that follow from two columns, with little noise; a few lie far outside."""
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (rows, 2)).round(3)
    numbers = (20 + features @ [30, -10] + rng.normal(0, 1, rows)).round(3)
    numbers[:3] = 500
    lines = ["a,b,y", *(f"{a},{b},{y}" for (a, b), y in zip(features, numbers, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return features, numbers


def test_measures_are_those_of_scikit_learn() -> None:
    outputs, classes = torch.from_numpy(RNG.normal(size=(50, 4))), torch.from_numpy(RNG.integers(4, size=50))
    task = Classification(4)
    right = task.scores(outputs, classes)
    assert task.measured(right.mean().item()) == pytest.approx(accuracy_score(classes, outputs.argmax(1)))
    shares = outputs.softmax(1).numpy()
    assert task.losses(outputs, classes).mean().item() == pytest.approx(log_loss(classes, shares, labels=range(4)))
    assert float(task.loss(outputs, classes)) == pytest.approx(log_loss(classes, shares, labels=range(4)))
    values, targets = torch.from_numpy(RNG.uniform(-1, 1, (2, 50, 1)))
    number = Regression(LOW, HIGH)
    units = Scale(LOW, HIGH)
    right = number.scores(values, targets)
    assert bool(((right >= 0) & (right <= 1)).all())
    expected = mean_absolute_error(units(targets).numpy(), units(values).numpy())
    assert number.measured(right.mean().item()) == pytest.approx(expected)
    assert number.losses(values, targets).mean().item() == pytest.approx(mean_squared_error(targets, values))
    assert float(number.loss(values, targets)) == pytest.approx(mean_squared_error(targets, values))


def test_canaries_have_other_targets() -> None:
    draws = torch.from_numpy(RNG.uniform(size=1000))
    classes = torch.from_numpy(RNG.integers(3, size=1000))
    wrong = Classification(3).wrong_targets(classes, draws)
    assert not (wrong == classes).any()
    assert set(wrong.tolist()) == {0, 1, 2}
    numbers = torch.from_numpy(RNG.uniform(-1, 1, (1000, 1)))
    assert ((Regression(0, 1).wrong_targets(numbers, draws) - numbers).abs() >= 1).all()


def test_numbers_are_brought_from_public_bounds_and_cut_where_they_are_private(tmp_path: Path) -> None:
    _, numbers = table(tmp_path / "t.csv")
    data = Dataset.from_csv(tmp_path / "t.csv", "y", target_bounds=(LOW, HIGH))
    assert repr(data) == "Dataset(name='t', train=400, test=0, shape=(2,), target_bounds=(-40.0, 80.0))"
    assert data.train_targets.dtype == torch.float32
    assert data.train_targets.shape == (400, 1)
    expected = np.clip(2 * (numbers - LOW) / (HIGH - LOW) - 1, -1, 1)
    np.testing.assert_allclose(data.train_targets[:, 0], expected, atol=1e-6)
    inputs = np.zeros((2, 1))
    far = Dataset.from_arrays("far", (inputs, [0, 9]), (inputs, [0, 9]), target_bounds=(0, 3))
    assert far.train_targets.tolist() == [[-1], [1]]
    assert far.test_targets.tolist() == [[-1], [5]], "an error on public test rows is the true one"
    with refused(match="not a range"):
        Dataset.from_arrays("far", (inputs, [0, 9]), target_bounds=(3, 0))


def test_a_number_is_learnt_and_told_in_its_own_units(tmp_path: Path) -> None:
    """Measured: 0.82 to 0.86 over ten seeds; that of the mean alone is 15."""
    features, numbers = table(tmp_path / "t.csv", rows=1500)
    recipe = NUMBERS.changed(data=f"csv:{tmp_path / 't.csv'}:y:0.2", target_bounds=(LOW, HIGH), epsilon=3.0)
    opened = start(tmp_path / "runs", recipe, seed=0)
    points = [point for point in opened.points() if point is not None]
    opened.close()
    assert points[-1].accuracy is None
    assert points[-1].mean_absolute_error < 1.5
    model = load(opened.folder)
    with torch.no_grad():
        found = model(torch.from_numpy(features).float()).numpy()
    assert found.shape == (1500,)
    assert np.abs(found[3:] - numbers[3:]).mean() < 1.5
    settings = json.loads((opened.folder / "settings.json").read_text())
    assert (settings["classes"], settings["labels"]) == (1, None)


def test_a_model_that_gives_no_single_number_is_refused() -> None:
    data = Dataset.from_arrays("toy", (np.zeros((4, 2)), np.zeros(4)), target_bounds=(LOW, HIGH))
    for model in ("torch.nn:Flatten", "torch.nn:Identity"):
        with refused(match="not one number for each"):
            RunBuilder(NUMBERS.changed(model=model), data)
    assert RunBuilder(NUMBERS, data).task == Regression(LOW, HIGH)


def test_wrong_recipes_are_refused() -> None:
    tabular = Recipe.load("tabular")
    assert isinstance(task_of(NUMBERS, 1), Regression)
    assert Recipe.from_toml(NUMBERS.to_toml()) == NUMBERS
    for changes, text in (
        ({"task": "guessing"}, "task is 'guessing'"),
        ({"task": "regression"}, "needs public bounds"),
        ({"target_bounds": (0, 1)}, "needs public bounds"),
        ({"task": "regression", "target_bounds": (1, 0)}, "not a range"),
        ({"task": "regression", "target_bounds": (0, float("nan"))}, "not a finite number"),
        ({"task": "regression", "target_bounds": "01"}, "not a range"),
    ):
        with refused(match=text):
            tabular.changed(**changes)
    with refused(match="'regression' are those of its own data"):
        NUMBERS.changed(data="csv:t.csv:y")
    assert NUMBERS.changed(data=NUMBERS.data, lr=1.0).target_bounds == (LOW, HIGH)
