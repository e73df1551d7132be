"""Runs on features: trained, resumed and loaded with one and the same map, which they keep."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import noisette
from noisette.app import datasets
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs, reopen, start
from noisette.training import accuracy

SPEC = "Scattering(pictures='strokes', axes=20, count=40, scales=1, angles=4, group=1)"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))
    return Recipe.load("digits").changed(model="linear", model_options={}, features=SPEC, steps=6, lr=20.0)


def test_the_model_sees_features_and_the_loaded_one_images(tmp_path: Path, recipe: Recipe) -> None:
    told: list[int] = []
    opened = start(tmp_path, recipe, seed=0, progress=lambda done, total: told.append(done))
    points = [point for point in opened.points() if point is not None]
    opened.close()
    assert told, "progress was told"
    assert opened.assembly.data.train_inputs.shape == (1437, 20)
    assert sum(p.numel() for p in opened.trainer.model.parameters()) == 21 * 10
    digits = datasets.load("digits")
    model = noisette.app.runs.load(opened.folder)
    right = accuracy(model, digits.test_inputs, digits.test_targets)
    assert points[-1].accuracy is not None
    assert abs(right - points[-1].accuracy) < 0.01  # features were rounded to 16 bits
    assert points[-1].accuracy > 0.5
    assert "progress" not in (opened.folder / "settings.json").read_text()


def test_a_network_sees_maps_of_features(tmp_path: Path, recipe: Recipe) -> None:
    maps = SPEC.replace("axes=20", "axes=3, maps=True")
    opened = start(tmp_path, recipe.changed(features=maps, model="maps_cnn", lr=2.0), seed=0)
    points = [point for point in opened.points() if point is not None]
    opened.close()
    assert opened.assembly.data.train_inputs.shape == (1437, 3, 4, 4)
    digits = datasets.load("digits")
    right = accuracy(noisette.app.runs.load(opened.folder), digits.test_inputs, digits.test_targets)
    assert points[-1].accuracy is not None
    assert abs(right - points[-1].accuracy) < 0.02


def test_a_run_keeps_its_own_map(tmp_path: Path, recipe: Recipe) -> None:
    opened = start(tmp_path, recipe, seed=0)
    opened.save()
    opened.close()
    state = torch.load(opened.folder / "features.pt", weights_only=True)
    state["axes"], state["variances"] = state["axes"].flip(1), state["variances"].flip(0)
    torch.save(state, opened.folder / "features.pt")
    again = reopen(opened.folder)
    again.close()
    same = torch.allclose(again.assembly.train[0], opened.assembly.train[0].flip(1), atol=2e-3)
    assert same, "what the run kept counts, not the cache"


def test_without_features_examples_stay_as_they_are() -> None:
    seen, digits = ModelInputs.of(Recipe.load("digits")), datasets.load("digits")
    assert torch.equal(seen.data.train_inputs, digits.train_inputs)
    assert seen.shape == digits.shape
    assert seen.fixed is None
