"""Do encoding by rank, Student-t noise and the score denoiser win in a softmax regression without a bias? Epsilon 1.

Each way has its own learning rate, chosen on the last sixth of the training part: rates a factor of two apart, the
same seeds for all ways, and further ones while the best lies at the edge. Then three seeds on the test pictures, with
that rate alone. Tasks are the recipes' own sizes, and few axes with few full batches, where other noises have their
best chance. Every finished run is one entry of experiments/results/beyond/ranked.json; what is there is not run again.

    python experiments/beyond/ranked.py mnist-few mnist-some mnist fashion-few fashion-some fashion
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

from common import RESULTS, Examples, commit, keep, kept, one_run
from torch import nn

from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs

PATH = RESULTS / "ranked.json"
FULL = 60_000
MOST_RATES = 12


@dataclass(frozen=True)
class Task:
    """Softmax regression on the first `axes` features of a recipe; `trials` seeds choose a learning rate near `lr`."""

    recipe: str
    axes: int
    steps: int
    batch: int
    lr: float
    trials: int = 2


TASKS = {
    "mnist-few": Task("mnist", axes=20, steps=5, batch=FULL, lr=400.0, trials=3),
    "mnist-some": Task("mnist", axes=100, steps=20, batch=FULL, lr=400.0, trials=3),
    "mnist": Task("mnist", axes=400, steps=400, batch=8192, lr=80.0, trials=1),
    "fashion-few": Task("fashion-mnist", axes=20, steps=5, batch=FULL, lr=400.0, trials=3),
    "fashion-some": Task("fashion-mnist", axes=100, steps=20, batch=FULL, lr=400.0, trials=3),
    "fashion": Task("fashion-mnist", axes=1000, steps=150, batch=8192, lr=300.0, trials=1),
}
WAYS = {
    "L2, Gaussian": {"encoder": "L2(radius=0.1)"},
    "tails, Student-t, Score": {
        "encoder": "Ranked(profiles=Tails(), radius=0.1)", "noise": "StudentT(df=9)", "denoiser": "Score()"
    },
    "tails, Student-t": {"encoder": "Ranked(profiles=Tails(), radius=0.1)", "noise": "StudentT(df=9)"},
    "tails, Gaussian": {"encoder": "Ranked(profiles=Tails(), radius=0.1)"},
}  # fmt: skip
SEEDS = (0, 1, 2)


class Search:
    """The runs of one task, with its features at hand."""

    def __init__(self, name: str) -> None:
        self.name, self.task, self.done = name, TASKS[name], kept(PATH)
        base = Recipe.load(self.task.recipe).changed(epsilon=1.0)
        self.recipe = base.changed(steps=self.task.steps, batch=self.task.batch, model_options={"bias": False})
        data = ModelInputs.of(base).data
        inputs = [nn.functional.normalize(x[:, : self.task.axes], dim=1) for x in (data.train_inputs, data.test_inputs)]
        self.train: Examples = (inputs[0], data.train_targets)
        self.test: Examples = (inputs[1], data.test_targets)

    def run(self, kind: str, way: str, lr: float, seed: int) -> float:
        """Accuracy of a trial, on held-out training pictures, or of a run, on test pictures; kept ones are read."""
        key: dict[str, Any] = {
            "kind": kind, "task": self.name, "way": way, "features": self.recipe.features,
            "axes": self.task.axes, "steps": self.task.steps, "batch": self.task.batch, "lr": lr, "seed": seed,
        }  # fmt: skip
        for one in self.done:
            if key.items() <= one.items():
                return float(one["accuracy"])
        (x, y), held, edge = self.train, self.test, len(self.train[0])
        if kind == "trial":
            edge = edge * 5 // 6
            held = x[edge:], y[edge:]
        recipe, began = self.recipe.changed(**WAYS[way], lr=lr), time.process_time()
        mechanism = recipe.mechanism(10 * self.task.axes, edge)
        right, spent = one_run(recipe, mechanism, (x[:edge], y[:edge]), held, seed)
        cpu = round(time.process_time() - began, 1)
        self.done.append(key | {"accuracy": right, "spent": spent, "cpu": cpu, "commit": commit()})
        keep(PATH, self.done)
        print(
            {name: self.done[-1][name] for name in ("kind", "task", "way", "lr", "seed", "accuracy", "cpu")}, flush=True
        )
        return right

    def rate(self, way: str) -> float:
        """The best rate on held-out pictures."""
        tried, wanted = dict[float, float](), [self.task.lr / 2, self.task.lr, self.task.lr * 2]
        while wanted and len(tried) < MOST_RATES:
            for lr in wanted:
                tried[lr] = statistics.mean(self.run("trial", way, lr, seed) for seed in range(self.task.trials))
            best = max(tried, key=lambda lr: tried[lr])
            wanted = {min(tried): [best / 2], max(tried): [best * 2]}.get(best, [])
        return best


def main(*names: str) -> None:
    """Run what is missing, and print a line for each way."""
    for name in names:
        search = Search(name)
        for way in WAYS:
            lr = search.rate(way)
            found = [100 * search.run("run", way, lr, seed) for seed in SEEDS]
            print(f"{name}, {way}, rate {lr:g}: {statistics.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
