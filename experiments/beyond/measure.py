"""Test accuracy of the recipes mnist, fashion-mnist and cifar10: one setting a budget, three seeds each.

Every finished run is one entry of experiments/results/beyond/RECIPE.json; what is there already is not run again.

    python experiments/beyond/measure.py mnist 0.2 0.5 1 3
"""

from __future__ import annotations

import sys
import time

import torch
from common import RESULTS, keep, kept, one_run

from noisette.recipes import Assembly, Recipe, Seen

SEEDS = (0, 1, 2)


def main(name: str, *budgets: str) -> None:
    """Fill in the missing runs of a recipe, then print its table."""
    path = RESULTS / f"{name}.json"
    done = kept(path)
    data = Seen.of(Recipe.load(name)).data
    for budget in map(float, budgets):
        recipe = Recipe.load(name).changed(epsilon=budget)
        missing = [s for s in SEEDS if not any((one["epsilon"], one["seed"]) == (budget, s) for one in done)]
        made = Assembly(recipe, data)
        mechanism = made.plan() if missing else None
        for seed in missing:
            assert mechanism is not None
            began = time.monotonic()
            right, spent = one_run(recipe, mechanism, made.train, made.test, seed)
            done.append({
                "epsilon": budget, "seed": seed, "accuracy": right, "spent": spent, "scale": mechanism.noise.scale,
                "steps": recipe.steps, "batch": recipe.batch, "lr": recipe.lr, "encoder": recipe.encoder,
                "features": recipe.features, "seconds": round(time.monotonic() - began, 1),
            })  # fmt: skip
            path.parent.mkdir(parents=True, exist_ok=True)
            keep(path, done)
            print(done[-1], flush=True)
    for budget in sorted({one["epsilon"] for one in done}):
        found = torch.tensor([one["accuracy"] for one in done if one["epsilon"] == budget]) * 100
        print(f"{name} epsilon {budget:g}: {found.mean():.2f} (from {found.min():.2f} to {found.max():.2f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
