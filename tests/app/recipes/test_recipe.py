"""Recipes: every file of the package loads, reads back to itself and can be planned; what makes no sense is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisette import guarantee, parse
from noisette.app import models
from noisette.app.recipes import Recipe, names
from noisette.denoisers import Denoiser
from noisette.errors import InvalidInput
from tests.support.helpers import refused

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
DIGITS = Recipe.load("digits")


def _dim(recipe: Recipe) -> int:
    model = models.build(recipe.model, SHAPES[recipe.data], 10, **recipe.model_options)
    return sum(p.numel() for p in model.parameters())


def test_the_package_has_recipes() -> None:
    assert {"digits", "mnist-paper"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_every_recipe_loads_and_reads_back(name: str) -> None:
    recipe = Recipe.load(name)
    assert recipe.name == name
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert parse(recipe.denoiser, Denoiser)


def test_mnist_paper_is_the_paper_s() -> None:
    recipe = Recipe.load("mnist-paper")
    assert _dim(recipe) == 26_010
    assert recipe.encoder.startswith("Ranked(profiles=PaperGaussian(n=1000")
    few = recipe.changed(encoder=recipe.encoder.replace("n=1000", "n=2"))  # all of them take seconds to draw
    mechanism = few.mechanism(26_010, 60_000)
    assert mechanism.rate == 256 / 60000
    assert (mechanism.steps, repr(mechanism.noise)) == (14062, "StudentT(df=9.0, scale=1.0)")
    assert repr(mechanism.encoder).startswith("Ranked(dim=26010, profiles=PaperGaussian(n=2")
    assert recipe.denoiser.startswith("KS(")


def test_cifar10_paper_is_the_paper_s() -> None:
    """100 epochs of batches of 256, and a network that two cores can train."""
    recipe = Recipe.load("cifar10-paper")
    assert recipe.encoder.startswith("Ranked(profiles=PaperGaussian(n=1000")
    assert _dim(recipe) == 34_930
    few = recipe.changed(encoder=recipe.encoder.replace("n=1000", "n=2"))  # all of them take seconds to draw
    mechanism = few.mechanism(34_930, 50_000)
    assert mechanism.rate == 256 / 50000
    assert mechanism.steps == 100 * 50_000 // 256
    assert repr(mechanism.noise) == "StudentT(df=9.0, scale=1.0)"
    assert repr(mechanism.encoder).startswith("Ranked(dim=34930, profiles=PaperGaussian(n=2")
    assert recipe.denoiser.startswith("KS(")


def test_digits_keeps_its_budget() -> None:
    mechanism = DIGITS.mechanism(_dim(DIGITS), 1437)
    assert 2.99 <= guarantee(mechanism, 1e-5, examples=1437).epsilon <= 3.0
    assert (DIGITS.epsilon, DIGITS.delta) == (3.0, 1e-5)


def test_the_steps_can_be_what_is_computed() -> None:
    recipe = DIGITS.changed(noise="Gaussian(scale=20.0)", epsilon=0.5)
    assert recipe.steps is None
    mechanism = recipe.mechanism(10, 1437)
    assert guarantee(mechanism, 1e-5).epsilon <= 0.5
    assert guarantee(mechanism.replace(steps=mechanism.steps + 1), 1e-5).epsilon > 0.5


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, ("Gaussian()", 120, 3.0)),
        ({"epsilon": 1.0}, ("Gaussian()", 120, 1.0)),
        ({"steps": 7}, ("Gaussian()", 7, 3.0)),
        ({"noise": "Gaussian(scale=2.0)"}, ("Gaussian(scale=2.0)", 120, None)),
        ({"noise": "Gaussian(scale=2.0)", "steps": 7}, ("Gaussian(scale=2.0)", 7, None)),
        ({"noise": "Gaussian(scale=2.0)", "epsilon": 1.0}, ("Gaussian(scale=2.0)", None, 1.0)),
    ],
)
def test_what_is_given_pushes_out_the_third(overrides: dict[str, Any], expected: tuple[Any, ...]) -> None:
    changed = DIGITS.changed(**overrides)
    assert (changed.noise, changed.steps, changed.epsilon) == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"epsilon": 3.0}, ("StudentT(df=9, scale=1.0)", None, 3.0)),
        ({"epsilon": 3.0, "noise": "Laplace()", "steps": 600}, ("Laplace()", 600, 3.0)),
        ({"epsilon": 3.0, "noise": "Laplace()"}, ("Laplace()", 14062, 3.0)),
    ],
)
def test_a_recipe_with_a_scale_can_be_overridden(overrides: dict[str, Any], expected: tuple[Any, ...]) -> None:
    changed = Recipe.load("mnist-paper").changed(**overrides)
    assert (changed.noise, changed.steps, changed.epsilon) == expected


def test_a_third_that_nobody_gave_is_refused() -> None:
    with refused(InvalidInput, match="not two"):
        Recipe.load("mnist-paper").changed(noise="Laplace()")
    with refused(InvalidInput):
        Recipe.load("mnist-paper").changed(noise="Laplace()", steps=600)
    with refused(InvalidInput, match="3 of"):
        DIGITS.changed(noise="Gaussian(scale=1.0)", steps=5, epsilon=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 0}, {"batch": 1.5}, {"lr": -1.0}, {"lr": float("nan")}, {"momentum": 1.0}, {"averaging": -0.1},
        {"schedule": "cosine"}, {"evaluations": 0}, {"steps": 0}, {"steps": -3}, {"encoder": "L3()"},
        {"denoiser": "Gaussian()"}, {"noise": "KS()"},
    ],
    ids=str,
)  # fmt: skip
def test_values_without_meaning_are_refused(change: dict[str, Any]) -> None:
    with refused(InvalidInput):
        DIGITS.changed(**change)


def test_numbers_of_numpy_are_written_as_any_other() -> None:
    theirs = DIGITS.changed(lr=np.float32(0.5), momentum=np.float32(0.25), batch=np.int64(32), epsilon=np.float32(2.0))
    assert theirs.to_toml() == DIGITS.changed(lr=0.5, momentum=0.25, batch=32, epsilon=2.0).to_toml()


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(DIGITS.changed(lr=0.123).to_toml())
    assert Recipe.load(str(path)).lr == 0.123
    for text, match in (
        ("= 1", "not TOML"),
        ("name = 'x'", "has no batch, data"),
        (DIGITS.to_toml().replace("lr =", "extra = 1\nlr ="), "unknown 'extra'"),
        (DIGITS.to_toml().replace("lr =", "learning_rate ="), r"unknown 'learning_rate'.*\n\nhint: did you mean lr\?"),
    ):
        path.write_text(text)
        with refused(InvalidInput, match=match):
            Recipe.load(str(path))
    with refused(InvalidInput, match="no recipe"):
        Recipe.load(str(tmp_path / "none.toml"))


def test_schedule_and_evaluations() -> None:
    linear = DIGITS
    assert [linear.factor(step, 4) for step in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert DIGITS.changed(schedule="constant").factor(3, 4) == 1.0
    assert DIGITS.changed(evaluations=3).every(10) == 4


def test_a_batch_beyond_the_data_takes_all_of_it() -> None:
    assert DIGITS.changed(noise="Gaussian(scale=1.0)", batch=99).mechanism(5, 20).rate == 1.0
