"""Settings and test error of the recipe regression: trials by five-fold cross-validation, then 20 seeds on test rows.

Every finished entry is kept in experiments/results/beyond/regression.json; what is there is not run again.

    python experiments/beyond/regression.py tune
    python experiments/beyond/regression.py measure
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from typing import Any

import torch
from common import RESULTS, keep, kept

from noisette.app.datasets import Dataset
from noisette.app.recipes import Recipe
from noisette.app.runs import RunBuilder
from noisette.app.runs.inputs import ModelInputs
from noisette.training import answers

BUDGETS = (0.5, 1.0, 3.0)
STEPS = (5, 10, 20, 40)
RATES = (0.4, 0.8, 1.6)
PATH = RESULTS / "regression.json"


def error(recipe: Recipe, data: Dataset, seed: int) -> float:
    """Mean absolute error on the test rows of `data`, at the last step, in the target's own units."""
    made = RunBuilder(recipe, data)
    trainer = made.trainer(made.plan(), seed=seed)
    list(trainer.run())
    inputs, targets = made.test
    return made.task.measured(made.task.rights(answers(trainer.evaluated, inputs), targets).mean().item())


def trial(recipe: Recipe, data: Dataset) -> float:
    """Mean error on held-out fifths of the training rows, four seeds each."""
    x, y = data.train_inputs, data.train_targets
    found = []
    for fold in range(5):
        held = torch.arange(len(x)) % 5 == fold
        part = replace(data, train_inputs=x[~held], train_targets=y[~held], test_inputs=x[held], test_targets=y[held])
        found += [error(recipe, part, seed) for seed in range(4)]
    return statistics.mean(found)


def main(what: str) -> None:
    """Fill in what is missing, then print the table."""
    done, data = kept(PATH), ModelInputs.of(Recipe.load("regression")).data
    for epsilon in BUDGETS:
        keys: list[dict[str, Any]] = (
            [{"kind": "trial", "epsilon": epsilon, "steps": steps, "lr": lr} for steps in STEPS for lr in RATES]
            if what == "tune"
            else [{"kind": "run", "epsilon": epsilon, "seed": seed} for seed in range(20)]
        )
        for key in keys:
            if any(key.items() <= one.items() for one in done):
                continue
            recipe = Recipe.load("regression").changed(epsilon=epsilon)
            if what == "tune":
                found = {"error": trial(recipe.changed(steps=key["steps"], lr=key["lr"]), data)}
            else:
                found = {"error": error(recipe, data, key["seed"]), "steps": recipe.steps, "lr": recipe.lr}
            done.append(key | found)
            keep(PATH, done)
        mine = sorted((one for one in done if one["epsilon"] == epsilon), key=lambda one: one["error"])
        for one in [one for one in mine if one["kind"] == "trial"][:4]:
            print(one)
        if runs := [one["error"] for one in mine if one["kind"] == "run"]:
            print(f"epsilon {epsilon:g}: {statistics.mean(runs):.1f} ({min(runs):.1f} to {max(runs):.1f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
