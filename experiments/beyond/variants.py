"""Ways to spend one budget: four tasks, and for each the recipe's own way with one thing changed.

Sizes are smaller than those of the recipes (fewer axes, smaller batches), so that a run takes seconds and every way
can have its own learning rate: three rates, a factor of two apart, are tried on the last sixth of the training part,
and one more while the best lies at the edge of those tried. What wins there is run at the recipes' own size as well,
with the recipe's learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from beyond.common import Examples
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients
from noisette._spec import parse
from noisette.app.features import FeatureMap, Features
from noisette.app.features.synthetic_images import draw
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs
from noisette.app.runs.build import model_of
from noisette.encoders.profiles import Empirical
from noisette.mechanism import Mechanism

EPSILON = 1.0
MOST_TRIALS = 6


@dataclass(frozen=True)
class Task:
    """A data set and a model: softmax regression on the first `axes` features of a recipe, or a CNN on pixels."""

    recipe: str
    title: str
    axes: int
    steps: int
    batch: int
    lr: float
    seeds: int = 3
    large: bool = False

    @property
    def linear(self) -> bool:
        """Whether the model is a softmax regression on features."""
        return self.axes > 0


TASKS = {
    "mnist": Task("mnist", "MNIST, linear", axes=250, steps=100, batch=4096, lr=200.0),
    "fashion-mnist": Task("fashion-mnist", "Fashion-MNIST, linear", axes=250, steps=80, batch=2048, lr=200.0),
    "mnist-large": Task("mnist", "MNIST, recipe's size", axes=400, steps=400, batch=8192, lr=80.0, large=True),
    "cifar10": Task("cifar10", "CIFAR-10, linear", axes=400, steps=60, batch=2048, lr=300.0),
    "mnist-cnn": Task("mnist", "MNIST, CNN", axes=0, steps=150, batch=256, lr=0.5, seeds=2),
    "fashion-large": Task(
        "fashion-mnist", "Fashion-MNIST, recipe's size", axes=1000, steps=250, batch=8192, lr=150.0, large=True
    ),
}


@dataclass(frozen=True)
class Way:
    """An encoder's profiles ("" is L2 clipping), a noise and a denoiser; `times` multiplies the first rates."""

    profiles: str = ""
    noise: str = "Gaussian()"
    denoiser: str = "Identity()"
    times: float = 1.0


WAYS = {
    "L2, Gaussian": Way(),
    "half-normal": Way("HalfNormal()"),
    "tails": Way("Tails()"),
    "made-up": Way("made-up"),
    "tails in blocks": Way("blocks"),
    "tails, Student-t": Way("Tails()", "StudentT(df=9)"),
    "tails, Student-t, Score": Way("Tails()", "StudentT(df=9)", "Score()"),
    "L2, KS": Way(denoiser="KS()", times=8.0),
    "L2, Kalman": Way(denoiser="Kalman(gain=0.7)"),
    "L2, LowPass": Way(denoiser="LowPass(beta=0.9)"),
    "the paper's": Way("PaperGaussian(n=1000, levels=128)", "StudentT(df=9)", "KS()", times=8.0),
}
"""The first is the recipes' own; "made-up" is an empirical profile of gradients of made-up pictures."""


CHALLENGER = "tails, Student-t, Score"


def ways(task: Task) -> list[str]:
    """Names of the ways that a task tries: blocks need a model with several layers."""
    if task.large:
        return [next(iter(WAYS)), CHALLENGER]
    return [name for name in WAYS if WAYS[name].profiles != "blocks" or not task.linear]


FEATURES = {
    "mnist": "Scattering(pictures='strokes', axes=400, whitening=0.5, count=4000)",
    "fashion-mnist": "Scattering(pictures='silhouettes', axes=1000, whitening=0.5, count=4000)",
    "cifar10": "Patches(filters=800, axes=1600, whitening=0.75, count=3000)",
}
"""Those that the recipes had when the kept runs were made; all of these have a bias."""


def base(task: Task) -> Recipe:
    """The task's recipe at its small size, with the features of then."""
    recipe = Recipe.load(task.recipe).changed(
        epsilon=EPSILON, steps=task.steps, batch=task.batch, features=FEATURES[task.recipe], model_options={}
    )
    if task.linear:
        return recipe
    return recipe.changed(model="mnist_cnn", model_options={"activation": "tanh"}, features="", chunk=64)


@cache
def examples(task: Task) -> tuple[Examples, Examples, FeatureMap | None]:
    """Training and test examples as the model sees them, and the map that made them from pictures."""
    seen = ModelInputs.of(base(task))
    train, test = _cut(seen.data.train_inputs, task), _cut(seen.data.test_inputs, task)
    return (train, seen.data.train_targets), (test, seen.data.test_targets), seen.fixed


def _cut(inputs: Tensor, task: Task) -> Tensor:
    return nn.functional.normalize(inputs[:, : task.axes], dim=1) if task.linear else inputs


def recipe_of(task: Task, name: str, lr: float) -> Recipe:
    """The task's recipe, with a way's encoder, noise and denoiser."""
    way, radius = WAYS[name], 0.1 if task.linear else 1.0
    profiles = {"made-up": _made_up, "blocks": _blocks}.get(way.profiles, lambda _: way.profiles)(task)
    encoder = f"Ranked(profiles={profiles}, radius={radius})" if profiles else f"L2(radius={radius})"
    return base(task).changed(encoder=encoder, noise=way.noise, denoiser=way.denoiser, lr=lr)


@cache
def mechanism(task: Task, name: str, size: int) -> Mechanism:
    """The mechanism of a way, calibrated for a training part of `size` examples."""
    return recipe_of(task, name, 1.0).mechanism(sum(p.numel() for p in _model(task).parameters()), size)


def _model(task: Task) -> nn.Module:
    return model_of(base(task), (task.axes,) if task.linear else (1, 28, 28), 10)


def _blocks(task: Task) -> str:
    dims = tuple(p.numel() for p in _model(task).parameters())
    return f"Blocks(dims={dims}, profiles=Tails())"


@cache
def _made_up(task: Task) -> str:
    """The mean profile of gradients along a short training on made-up pictures, each labelled by its likest of ten."""
    recipe = base(task)
    kind = parse(recipe.features, Features).pictures if recipe.features else "strokes"
    pictures = draw(kind, 600, (3, 32, 32) if task.recipe == "cifar10" else (1, 28, 28), seed=7)
    fixed = examples(task)[2]
    with torch.no_grad():
        inputs = pictures if fixed is None else _cut(fixed(pictures), task)
    flat = inputs.flatten(1)
    labels = torch.cdist(flat, flat[:10]).argmin(dim=1)
    model, loss = _model(task), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=20.0 if task.linear else 0.2, momentum=0.9)
    rows = []
    for step in range(31):
        if step % 10 == 0:
            rows += [chunk.clone() for chunk in PerExampleGradients(model, loss).chunks((inputs[:200], labels[:200]))]
        optimizer.zero_grad()
        loss(model(inputs), labels).backward()
        optimizer.step()
    return repr(Empirical.from_gradients(torch.cat(rows)))
