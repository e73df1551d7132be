"""What tuning, measuring and comparing share: files of results, and one run of a recipe."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from noisette._io import write
from noisette.app.datasets import Dataset
from noisette.app.recipes import Recipe
from noisette.app.runs import RunBuilder
from noisette.mechanism import Mechanism
from noisette.training import accuracy

RESULTS = Path(__file__).parents[1] / "results" / "beyond"

Examples = tuple[Tensor, Tensor]


def kept(path: Path) -> list[dict[str, Any]]:
    """The entries of a file of results; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def keep(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write them, one a line; a crash leaves the file as it was."""
    write(path, ("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n").encode())


def commit() -> str:
    """The commit that runs are made at."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def settings(recipe: Recipe) -> dict[str, Any]:
    """What a run of a recipe's budget is told by."""
    names = (
        "features",
        "model_options",
        "encoder",
        "noise",
        "denoiser",
        "steps",
        "batch",
        "lr",
        "momentum",
        "averaging",
    )
    return {name: getattr(recipe, name) for name in names}


def shown(name: str, epsilon: float) -> str:
    """Mean and range, in percent, of the kept runs of a recipe with the settings that it has today; "" without any.

    Less than three of them are said.
    """
    key = {"epsilon": epsilon, **settings(Recipe.load(name).changed(epsilon=epsilon))}
    found = [100 * run["accuracy"] for run in kept(RESULTS / f"{name}.json") if key.items() <= run.items()]
    if not found:
        return ""
    few = {1: ", 1 seed", 2: ", 2 seeds"}.get(len(found), "")
    return f"{statistics.mean(found):.2f} ({min(found):.2f} to {max(found):.2f}{few})"


def one_run(
    recipe: Recipe,
    mechanism: Mechanism,
    train: Examples,
    held: Examples,
    seed: int,
    stepped: Callable[[int], None] = lambda _: None,
) -> tuple[float, float]:
    """Accuracy on the examples `held` at the last step of a run on `train`, and the epsilon spent.

    `stepped` is told the number of every step that is done.
    """
    data = Dataset.from_arrays(recipe.name, train, held)
    trainer = RunBuilder(recipe, data).trainer(mechanism, seed=seed)
    for progress in trainer.run():
        stepped(progress.updates)
    return accuracy(trainer.evaluated, *held), trainer.private.guarantee(recipe.delta).epsilon
