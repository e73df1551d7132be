"""Settings of a recipe, tried on a validation split: the last sixth of the training part. No test picture is read.

Every finished trial is one entry of experiments/results/beyond/tuning-RECIPE.json; what is there is not run again.

    python experiments/beyond/tune.py mnist --epsilon 1 --axes 400 600 --steps 100 200 --lr 200 400
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from common import RESULTS, keep, kept, one_run
from torch import Tensor, nn

from noisette._gradients import trained_parameters
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs
from noisette.app.runs.build import model_of


def tried(recipe: Recipe, inputs: Tensor, targets: Tensor, axes: int, seed: int) -> float:
    """Validation accuracy of `recipe` on the first `axes` of its features."""
    kept = nn.functional.normalize(inputs[:, :axes], dim=1)
    edge = len(kept) * 5 // 6
    mechanism = recipe.mechanism(trained_parameters(model_of(recipe, (axes,), 10)), edge)
    return one_run(recipe, mechanism, (kept[:edge], targets[:edge]), (kept[edge:], targets[edge:]), seed)[0]


def main() -> None:
    """Try every combination that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--epsilon", type=float, nargs="+", required=True)
    parser.add_argument("--axes", type=int, nargs="+", required=True)
    parser.add_argument("--steps", type=int, nargs="+", required=True)
    parser.add_argument("--lr", type=float, nargs="+", required=True)
    parser.add_argument("--batch", type=int, nargs="+", default=[8192])
    parser.add_argument("--radius", type=float, nargs="+", default=[0.1])
    parser.add_argument("--bias", type=int, nargs="+", default=[0])
    parser.add_argument("--averaging", type=float, nargs="+", default=[0.0])
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    asked = parser.parse_args()
    base = Recipe.load(asked.recipe)
    data = ModelInputs.of(base).data
    path = RESULTS / f"tuning-{asked.recipe}.json"
    done = kept(path)
    names = ("epsilon", "axes", "steps", "lr", "batch", "radius", "bias", "averaging", "seed")
    for values in itertools.product(*(getattr(asked, name) for name in names)):
        trial: dict[str, Any] = {"features": base.features, **dict(zip(names, values, strict=True))}
        if any(trial.items() <= one.items() for one in done):
            continue
        epsilon, axes, steps, lr, batch, radius, bias, averaging, seed = values
        recipe = base.changed(
            epsilon=epsilon, steps=steps, lr=lr, batch=batch, encoder=f"L2(radius={radius})", averaging=averaging
        )
        recipe = recipe.changed(model_options={"bias": bool(bias)})
        done.append(trial | {"validation": tried(recipe, data.train_inputs, data.train_targets, axes, seed)})
        path.parent.mkdir(parents=True, exist_ok=True)
        keep(path, done)
        print(done[-1], flush=True)


if __name__ == "__main__":
    main()
