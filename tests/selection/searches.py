"""A search that is small enough to be made in a test: a linear model of digits, five steps a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisette.recipes import Recipe
from noisette.selection import begin, go_on
from noisette.selection.tuning import Tuned
from noisette.trials import Trials, trials_of

TINY = Recipe(
    name="tiny", data="digits", model="linear", encoder="L2()", noise="Gaussian()", batch=300, lr=1.0, steps=5,
    epsilon=3.0, chunk=512, evaluations=1,
)  # fmt: skip
GRID = {"lr": [0.5, 1.0, 2.0]}


def prepared(root: Path, *, trials: Trials | None = None, seed: int | None = 4, **options: Any) -> Path:
    """A search that has drawn its runs and made none."""
    options = {"candidates": GRID, "epsilon": 3.0, "recipe": TINY} | options
    recipe, candidates = options.pop("recipe"), options.pop("candidates")
    return begin(root, recipe, candidates, trials=trials or trials_of("geometric", 3), seed=seed, **options)


def searched(root: Path, **options: Any) -> tuple[Path, Tuned]:
    folder = prepared(root, **options)
    return folder, go_on(folder, seed=options.get("seed", 4))
