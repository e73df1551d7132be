"""Test accuracy of the recipes mnist, fashion-mnist and cifar10: one setting a budget, three seeds each.

Every finished run is one entry of experiments/results/beyond/RECIPE.json, with the commit that it was made at; what is
there already with the settings of today is not run again.

    python experiments/beyond/measure.py mnist 0.2 0.5 1 3
"""

from __future__ import annotations

import sys
import time
from typing import Any

from common import RESULTS, commit, keep, kept, one_run, settings, shown

from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs, RunBuilder

SEEDS = (0, 1, 2)


def main(name: str, *budgets: str) -> None:
    """Fill in the missing runs of a recipe, then print its table."""
    path = RESULTS / f"{name}.json"
    done = kept(path)
    data = ModelInputs.of(Recipe.load(name)).data
    for budget in map(float, budgets):
        recipe = Recipe.load(name).changed(epsilon=budget)
        wanted: list[dict[str, Any]] = [{"epsilon": budget, "seed": seed, **settings(recipe)} for seed in SEEDS]
        missing = [one for one in wanted if not any(one.items() <= run.items() for run in done)]
        made = RunBuilder(recipe, data)
        mechanism = made.plan() if missing else None
        for one in missing:
            assert mechanism is not None
            began, cpu = time.monotonic(), time.process_time()
            right, spent = one_run(recipe, mechanism, made.train, made.test, one["seed"])
            done.append({
                **one, "accuracy": right, "spent": spent, "scale": mechanism.noise.scale,
                "commit": commit(), "seconds": round(time.monotonic() - began, 1),
                "cpu": round(time.process_time() - cpu, 1),
            })  # fmt: skip
            path.parent.mkdir(parents=True, exist_ok=True)
            keep(path, done)
            print(done[-1], flush=True)
    for budget in sorted(map(float, budgets)):
        print(f"{name} epsilon {budget:g}: {shown(name, budget)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
