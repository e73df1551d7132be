"""One training run of a recipe -> one point of results/runs.json, which the training figures share.

A run with a constant learning rate that is evaluated at step t is, up to there, a run of t steps: `best` and
`convergence` read it so. Runs are seeded, so nothing of them may be released.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import Kept, Point
from parts import Parts, commit
from torch import Tensor

from noisette import guarantee
from noisette._private import Released
from noisette.app import datasets
from noisette.app.datasets import Dataset
from noisette.app.recipes import Recipe
from noisette.app.runs import RunBuilder
from noisette.denoisers import KS
from noisette.denoisers.base import State
from noisette.mechanism import Mechanism
from noisette.training import accuracy

Tell = Callable[[str, int, int], None]

RUNS = Kept("runs")
SETTINGS = ("data", "encoder", "noise", "denoiser", "lr", "schedule", "batch", "steps")
_FEW = 120  # steps at which the distance is noted, evenly spaced in their logarithm


@dataclass(frozen=True)
class TracedKS(KS):
    """The paper's denoiser, with its last distance in its state: a function of the release, so public."""

    def _init_state(self, dim: int) -> State:  # noqa: ARG002
        return {"distance": torch.zeros((), dtype=torch.float64)}

    def _update(self, released: Released, state: State) -> tuple[Tensor, State]:  # noqa: ARG002
        distance = self._measure(released)
        return distance * released.values, {"distance": torch.tensor(distance, dtype=torch.float64)}


def key(recipe: Recipe, seed: int) -> dict[str, Any]:
    """What names a run among the kept ones."""
    options = ", ".join(f"{name}={value!r}" for name, value in sorted(recipe.model_options.items()))
    settings = {name: getattr(recipe, name) for name in SETTINGS}
    return settings | {"model": f"{recipe.model}({options})", "seed": seed}


def ensure(recipe: Recipe, seed: int, tell: Tell, *, kept: Kept = RUNS, held_out: bool = False) -> None:
    """Run what is not kept yet, and keep it; what was killed on the way goes on from its last checkpoint."""
    if not kept.has(**key(recipe, seed)):
        kept.add(run(recipe, seed, tell, held_out=held_out))
        _parts(recipe, seed, held_out).done()


def run(recipe: Recipe, seed: int, tell: Tell, *, held_out: bool = False) -> Point:
    """Train, and return settings, accuracy in percent after epochs 1 to 12, 15, 18, ... and the last, and epsilons.

    Accuracy is on the test part, or with `held_out` on the last sixth of the training part, which is then not trained
    on. An evaluation takes as long as tens of steps, hence the gaps. `cpu_seconds` is the time of one core, without
    what was lost where the run was killed.
    """
    parts = _parts(recipe, seed, held_out)
    with parts.alone():
        return _trained(recipe, seed, tell, parts, held_out)


def _parts(recipe: Recipe, seed: int, held_out: bool) -> Parts:
    return Parts(key(recipe, seed) | {"held_out": held_out})


def _trained(recipe: Recipe, seed: int, tell: Tell, parts: Parts, held_out: bool) -> Point:
    notes = parts.notes() or {"curve": [], "distances": [], "commits": [], "cpu_seconds": 0.0}
    began, code = time.process_time() - notes["cpu_seconds"], commit()
    if code not in notes["commits"]:
        notes["commits"].append(code)
    traced = "TracedKS()" if recipe.denoiser == "KS()" else recipe.denoiser
    made = RunBuilder(recipe.changed(model_seed=seed, denoiser=traced), _part(_loaded(recipe.data), held_out=held_out))
    mechanism = made.plan()
    name = f"{recipe.data}: {recipe.encoder.partition('(')[0]} + {recipe.noise}, lr {recipe.lr:g}, seed {seed}"
    epoch_steps, total = len(made.train[0]) // recipe.batch, mechanism.steps
    for trainer, step in parts.steps(lambda drawn: made.trainer(mechanism, seed=drawn), seed, notes):
        if "distance" in trainer.private.state:
            notes["distances"].append(float(trainer.private.state["distance"]))
        epoch, into = divmod(step, epoch_steps)
        if (into == 0 and (epoch <= 12 or epoch % 3 == 0)) or step == total:
            notes["curve"].append((step, round(100 * accuracy(trainer.evaluated, *made.test), 2)))
        notes["cpu_seconds"] = time.process_time() - began
        tell(name, step, total)
    point = key(recipe, seed) | {
        "parameters": mechanism.encoder.known_dim,
        "accuracy": notes["curve"][-1][1],
        "curve": notes["curve"],
        "cpu_seconds": round(notes["cpu_seconds"], 1),
        "command": " ".join(["python", f"experiments/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": ", ".join(notes["commits"]),
    }
    if notes["distances"]:
        point["mean_distance"] = float(np.mean(notes["distances"]).round(6))
    if notes["distances"] and not held_out:
        noted = np.unique(np.geomspace(1, total, _FEW).round().astype(int)).tolist()
        point["distances"] = [(step, round(notes["distances"][step - 1], 6)) for step in noted]
    return point | epsilons(mechanism, recipe.delta)


def epsilons(mechanism: Mechanism, delta: float) -> dict[str, float]:
    """Epsilon of the whole run by the paper's accountant and by the tight one."""
    return {
        f"epsilon_{accountant.partition('-')[0]}": round(guarantee(mechanism, delta, accountant).epsilon, 4)
        for accountant in ("rdp-classic", "pld")
    }


@lru_cache(maxsize=1)
def _loaded(name: str) -> Dataset:
    return datasets.load(name)


def _part(data: Dataset, *, held_out: bool) -> Dataset:
    """The data set itself, or its training part alone, of which the last sixth takes the place of the test part."""
    if not held_out:
        return data
    first = len(data.train_inputs) * 5 // 6
    inputs, targets = data.train_inputs, data.train_targets
    return Dataset(data.name, inputs[:first], targets[:first], inputs[first:], targets[first:], data.classes)
