"""A run is put together in one place: whoever trains by a recipe trains the same model in the same way."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.tests.conftest import importable
from noisette import parse
from noisette.app import datasets
from noisette.app.features import Features
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs, RunBuilder, start
from noisette.app.runs.build import model_of
from tests.support.tiny_run import flat, recipe

ROOT = Path(__file__).parents[3]
RICH = {"denoiser": "Kalman(gain=0.7)", "schedule": "linear", "momentum": 0.5, "averaging": 0.5, "steps": 5}


def _weights(made: RunBuilder) -> Tensor:
    trainer = made.trainer(made.plan(), seed=3)
    assert [progress.updates for progress in trainer.run()] == [1, 2, 3, 4, 5]
    return flat(trainer.evaluated.parameters())


def test_a_run_in_a_folder_is_the_assembly(tmp_path: Path) -> None:
    """Bit by bit, so that no denoiser, schedule, momentum, average, seed or feature is lost on either way."""
    plan = recipe(tmp_path, **RICH)
    opened = start(tmp_path, plan, seed=3)
    for _ in opened.points():
        pass
    opened.close()
    alone = _weights(RunBuilder(plan, ModelInputs.of(plan).data))
    assert torch.equal(flat(opened.trainer.evaluated.parameters()), alone)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("denoiser", "Identity()"),
        ("schedule", "constant"),
        ("momentum", 0.0),
        ("averaging", 0.0),
        ("lr", 0.2),
        ("model_seed", 7),
        ("batch", 9),
    ],
)
def test_every_setting_counts(tmp_path: Path, name: str, other: object) -> None:
    """With another value the weights are others: each reaches the trainer."""
    rich = recipe(tmp_path, **RICH)
    poor = rich.changed(**{name: other})
    seen = ModelInputs.of(rich).data
    assert not torch.equal(_weights(RunBuilder(rich, seen)), _weights(RunBuilder(poor, seen)))


def test_the_experiments_train_the_same(tmp_path: Path) -> None:
    plan = recipe(tmp_path, **RICH)
    made = RunBuilder(plan, ModelInputs.of(plan).data)
    with importable(ROOT / "experiments"):
        common = importlib.import_module("beyond.common")
    right, spent = common.one_run(plan, made.plan(), made.train, made.test, 3)
    opened = start(tmp_path, plan, seed=3)
    points = [point for point in opened.points() if point]
    opened.close()
    assert (right, spent) == (points[-1].accuracy, points[-1].epsilon)


@pytest.mark.parametrize(("name", "count"), [("mnist", 4000), ("fashion-mnist", 10_000), ("cifar10", 16_000)])
def test_models_of_recipes_are_models_on_features(name: str, count: int) -> None:
    plan = Recipe.load(name)
    model = model_of(plan, (parse(plan.features, Features).axes,), 10)
    assert sum(p.numel() for p in model.parameters()) == count


def test_there_is_one_place() -> None:
    """Nobody else who trains by a recipe makes a private run, a schedule or a trainer."""
    folders = [*(ROOT / "src/noisette/app" / name for name in ("recipes", "runs", "commands")), ROOT / "experiments"]
    for word in ("make_private(", "torch.optim.lr_scheduler", "Trainer("):
        found = [path.name for folder in folders for path in sorted(folder.rglob("*.py")) if word in path.read_text()]
        assert found == ["build.py"], word


def test_only_what_is_at_hand_is_trained_on() -> None:
    """A part of a data set, as an audit or a validation has it: the plan is for its size."""
    plan = Recipe.load("digits").changed(noise="Gaussian(scale=5.0)", steps=1, batch=100)
    digits = datasets.load("digits")
    made = RunBuilder(plan, digits)
    assert made.plan(200).rate == 0.5
    assert made.plan().rate == 100 / 1437
    part = digits.train_inputs[:200], digits.train_targets[:200]
    assert [p.updates for p in made.trainer(made.plan(200), part, seed=0).run()] == [1]
