"""Settings and test accuracy of the recipe tabular: trials by five-fold cross-validation, then 20 seeds on test rows.

Every finished entry is kept in experiments/results/beyond/tabular.json; what is there is not run again.

    python experiments/beyond/tabular.py tune
    python experiments/beyond/tabular.py measure
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import torch
from common import RESULTS, keep, kept, one_run

from noisette.app import datasets
from noisette.app.recipes import Recipe

BUDGETS = (0.2, 0.5, 1.0, 3.0)
STEPS = (5, 10, 20, 40)
RATES = (1.0, 2.0, 4.0, 8.0, 16.0)
PATH = RESULTS / "tabular.json"


def trial(epsilon: float, steps: int, lr: float) -> float:
    """Mean accuracy on held-out fifths of the training rows, two seeds each."""
    recipe, data = Recipe.load("tabular").changed(epsilon=epsilon, steps=steps, lr=lr), datasets.load("breast-cancer")
    x, y = data.train_inputs, data.train_targets
    mechanism = recipe.mechanism(2 * 31, len(x) * 4 // 5)
    found = []
    for fold in range(5):
        held = torch.arange(len(x)) % 5 == fold
        for seed in (0, 1):
            found.append(one_run(recipe, mechanism, (x[~held], y[~held]), (x[held], y[held]), seed)[0])
    return statistics.mean(found)


def measured(epsilon: float, seed: int) -> dict[str, Any]:
    """Test accuracy of the recipe as it is."""
    recipe, data = Recipe.load("tabular").changed(epsilon=epsilon), datasets.load("breast-cancer")
    train, test = (data.train_inputs, data.train_targets), (data.test_inputs, data.test_targets)
    right, spent = one_run(recipe, recipe.mechanism(2 * 31, len(train[0])), train, test, seed)
    return {"accuracy": right, "spent": spent, "steps": recipe.steps, "lr": recipe.lr}


def main(what: str) -> None:
    """Fill in what is missing, then print the table."""
    done = kept(PATH)

    def add(key: dict[str, Any], result: dict[str, Any]) -> None:
        done.append(key | result)
        keep(PATH, done)

    for epsilon in BUDGETS:
        for key in (
            [{"kind": "trial", "epsilon": epsilon, "steps": steps, "lr": lr} for steps in STEPS for lr in RATES]
            if what == "tune"
            else [{"kind": "run", "epsilon": epsilon, "seed": seed} for seed in range(20)]
        ):
            if any(key.items() <= one.items() for one in done):
                continue
            if what == "tune":
                add(key, {"accuracy": trial(key["epsilon"], key["steps"], key["lr"])})
            else:
                add(key, measured(key["epsilon"], key["seed"]))
        found = sorted((one for one in done if one["epsilon"] == epsilon), key=lambda one: -one["accuracy"])
        for one in [one for one in found if one["kind"] == "trial"][:4]:
            print(one)
        if runs := [100 * one["accuracy"] for one in found if one["kind"] == "run"]:
            print(f"epsilon {epsilon:g}: {statistics.mean(runs):.2f} ({min(runs):.2f} to {max(runs):.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
