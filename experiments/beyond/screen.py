"""Settings of a recipe, screened in a plain loop: full batches of some of the training pictures, seconds a trial.

The noise is that of a full batch of all training pictures, made smaller as the batch is, so that signal and noise are
in the same proportion. Judged on the last sixth of the training part; no test picture is read. Every finished trial is
one entry of experiments/results/beyond/screening.json. What is chosen by it is tried again by tune.py, which trains by
the library.

    python experiments/beyond/screen.py cifar10 --examples 15000 --epsilon 1 --steps 60 --lr 400 700 --bias 0 1

Other features than the recipe's are tried by their text; only the pictures that are needed are mapped, and parts that
several joins have are learnt and mapped once:

    python experiments/beyond/screen.py fashion-mnist --features "TwoLayers(pictures='silhouettes', axes=1600)"
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import richer  # noqa: F401 - its features and pictures can be named
import torch
from common import RESULTS, Examples, keep, kept
from torch import Tensor, nn

from noisette import Mechanism, calibrate
from noisette._spec import parse
from noisette.app import datasets
from noisette.app.datasets._published_files import cache_folder
from noisette.app.features import FeatureMap, Features, Joined, fit_cached, transform_cached
from noisette.app.features.base import principal
from noisette.app.features.concat import ConcatMaps
from noisette.app.features.synthetic_images import draw
from noisette.app.recipes import Recipe
from noisette.encoders import L2
from noisette.noise import Gaussian

PATH = RESULTS / "screening.json"
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda scores: torch.softmax(scores, dim=1),
    "sigmoid": torch.sigmoid,
    "squares": lambda scores: scores,
}
"""What a loss makes of scores (n, 10): its derivative is that less the targets."""


@cache
def scale(epsilon: float) -> float:
    """Of the noise of one full batch; of T of them it is sqrt(T) times that."""
    one = calibrate(Mechanism(L2(dim=1), Gaussian(), rate=1.0, steps=1), epsilon, 1e-5, field="scale")
    assert one.noise.scale is not None
    return one.noise.scale


def seen(spec: Features, images: Tensor) -> Tensor:
    """What `spec` makes of `images`: as a recipe does it, but that the parts of a join come from files of their own."""
    shape, folder = tuple(images.shape[1:]), cache_folder()
    if not isinstance(spec, Joined):
        return transform_cached(fit_cached(spec, shape, folder), images, folder)
    parts: list[FeatureMap] = [fit_cached(part, shape, folder) for part in spec.parts]
    raw = ConcatMaps(parts, spec.weights)
    made_up = draw(spec.pictures, spec.count, shape, spec.seed)
    rows, mapped = (raw.beside([transform_cached(part, them, folder) for part in parts]) for them in (made_up, images))
    mean = rows.mean(dim=0)
    fixed = FeatureMap(raw, mean, *principal(rows - mean, spec.axes), spec.whitening)
    return fixed.scaled(fixed.along(mapped))


def waves(rows: Tensor, count: int, width: float) -> Tensor:
    """Random Fourier features (n, count) of rows (n, d), for a Gaussian kernel of `width`; without any, the rows."""
    if not count:
        return rows
    generator = torch.Generator().manual_seed(0)
    frequencies = torch.randn(rows.shape[1], count, generator=generator) / width
    phases = 2 * math.pi * torch.rand(count, generator=generator)
    return nn.functional.normalize((rows @ frequencies + phases).cos(), dim=1)


def trained(some: Examples, held: Examples, total: int, trial: dict[str, Any]) -> float:
    """Accuracy on `held` after `trial` on `some` of `total` examples, features (n, d) of length one."""
    (x, y), size = some, len(some[0])
    targets, loss = nn.functional.one_hot(y, 10).float(), LOSSES[trial["loss"]]
    x, seen = (waves(rows, trial["waves"], trial["width"]) for rows in (x, held[0]))
    x, seen = (nn.functional.pad(rows, (0, 1), value=float(trial["bias"])) for rows in (x, seen))
    lengths = x.norm(dim=1)
    noise = scale(trial["epsilon"]) * math.sqrt(trial["steps"]) * size / total * trial["radius"]
    generator = torch.Generator().manual_seed(trial["seed"])
    weights, velocity, average = (torch.zeros(10, x.shape[1]) for _ in range(3))
    for step in range(trial["steps"]):
        wrong = loss(nn.functional.linear(x, weights)) - targets
        wrong *= (trial["radius"] / (wrong.norm(dim=1) * lengths).clamp(min=1e-12)).clamp(max=1)[:, None]
        gradient = (wrong.T @ x + noise * torch.randn(weights.shape, generator=generator)) / size
        velocity.mul_(0.9).add_(gradient)
        weights -= trial["lr"] * (1 - step / trial["steps"]) * velocity
        average.mul_(trial["averaging"]).add_(weights)
    return float((nn.functional.linear(seen, average).argmax(dim=1) == held[1]).float().mean())


def main() -> None:
    """Try every combination that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--examples", type=int, default=15_000)
    kinds: dict[str, tuple[type, list[Any]]] = {
        "epsilon": (float, [1.0]), "steps": (int, [60]), "lr": (float, [400.0]), "radius": (float, [0.1]),
        "bias": (int, [0]), "averaging": (float, [0.0]), "seed": (int, [0]),
        "loss": (str, ["softmax"]), "waves": (int, [0]), "width": (float, [1.0]),
    }  # fmt: skip
    for name, (kind, default) in kinds.items():
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default)
    parser.add_argument("--features", nargs="+")
    asked = parser.parse_args()
    recipe, done = Recipe.load(asked.recipe), kept(PATH)
    data, size = datasets.load(recipe.data), asked.examples
    edge = len(data.train_inputs) * 5 // 6
    needed = torch.cat([torch.arange(size), torch.arange(edge, len(data.train_inputs))])
    images, y = data.train_inputs[needed], data.train_targets[needed]
    for features in asked.features or [recipe.features]:
        about = {"data": recipe.data, "features": features, "examples": size}
        trials = [about | dict(zip(kinds, values, strict=True)) for values in every(asked, kinds)]
        trials = [trial for trial in trials if not any(trial.items() <= one.items() for one in done)]
        x = seen(parse(features, Features), images) if trials else images
        print(features)
        for trial in trials:
            found = trained((x[:size], y[:size]), (x[size:], y[size:]), edge, trial)
            done.append(trial | {"validation": round(found, 4)})
            keep(PATH, done)
            print({name: done[-1][name] for name in (*kinds, "validation")}, flush=True)


def every(asked: argparse.Namespace, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """All combinations of the values that were asked for."""
    return itertools.product(*(getattr(asked, name) for name in names))


if __name__ == "__main__":
    main()
