"""Recipes with parts of one's own: any optimizer of torch, models by import path, weights in a format of all tools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from noisette.app.models import build
from noisette.app.recipes import Recipe
from noisette.app.recipes.optimizers import optimizer_of
from noisette.app.runs import load, start
from tests.support.helpers import refused

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, inputs, classes, width=4):
        super().__init__(nn.Flatten(), nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, classes))

number = 3
"""
FIT = [
    name
    for name in torch.optim.__all__
    if name[0].isupper() and name not in {"LBFGS", "Muon", "Optimizer", "SparseAdam"}
]


def quick(**changes: object) -> Recipe:
    return Recipe.load("digits").changed(steps=2, noise="Gaussian(scale=9.0)", momentum=0.0, evaluations=1, **changes)


@pytest.mark.parametrize("name", FIT)
def test_every_optimizer_takes_a_private_step(name: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = optimizer_of(quick(optimizer=name, lr=0.01), model)
    before = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert type(optimizer) is getattr(torch.optim, name)
    assert any(not torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_optimizers_that_do_not_fit_are_refused() -> None:
    model = nn.Linear(2, 2)
    for recipe, text in (
        (quick(optimizer="Adm"), "no 'Adm'"),
        (quick(optimizer="Optimizer"), "no 'Optimizer'"),
        (quick(optimizer="LBFGS"), "LBFGS asks"),
        (quick(optimizer="SparseAdam"), "sparse"),
        (quick(optimizer="Muon"), "does not take"),  # of vectors, like a bias
        (quick(optimizer="Adam", optimizer_options={"beta": 1}), "has no beta"),
        (quick(optimizer="Adam", optimizer_options={"eps": -1.0}), "does not take"),
        (Recipe.load("digits").changed(optimizer="Adam", momentum=0.5), "has no momentum"),
    ):
        with refused(match=text):
            optimizer_of(recipe, model)
    with refused(match="optimizer_options"):
        quick(optimizer_options={"lr": 1.0})
    recipe = quick(optimizer="Adam", optimizer_options={"eps": 1e-3})
    assert Recipe.from_toml(recipe.to_toml()) == recipe


def test_a_model_of_ones_own_is_trained_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mynets.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    recipe = quick(model="mynets:Net", model_options={"width": 3}, optimizer="Adam", lr=0.01)
    opened = start(tmp_path / "runs", recipe)
    for _ in opened.points():
        pass
    opened.close()
    model = load(opened.folder)
    assert type(model).__name__ == "Net"
    assert model[1].weight.shape == (3, 64)
    plain = load_file(opened.folder / "model.safetensors")
    assert plain.keys() == model.state_dict().keys()
    assert all(torch.equal(plain[name], value) for name, value in model.state_dict().items())
    for name, text in (
        ("mynets:Missing", r"mynets has no 'Missing'.*\n\nhint: it was looked for in .*mynets\.py"),
        ("mynets:Nett", r"mynets has no 'Nett'.*\n\nhint: did you mean Net\?"),
        ("nowhere_at_all:Net", "cannot be imported"),
        (":Net", "is no import path"),
        ("mynets:number", "makes no model"),
    ):
        with refused(match=text):
            build(name, (1, 8, 8), 10)
    with refused(match="no option 'depth'"):
        build("mynets:Net", (1, 8, 8), 10, depth=2)
