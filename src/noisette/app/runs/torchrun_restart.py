"""Runs that torchrun starts again: the same command goes on with the run that it had begun."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from shlex import quote

from noisette import _io
from noisette.app.recipes.recipe import Recipe
from noisette.app.runs import metrics
from noisette.app.runs.run_settings import Settings
from noisette.errors import InvalidInput

__all__ = ["launch", "run_begun_before_restart"]


def launch() -> str | None:
    """A name for the torchrun that started this process, the same when it starts its processes again; None without.

    It is the --rdzv-id where one was given. Else torchrun calls itself "none", and the random name of the folder that
    it makes for errors tells one torchrun from another.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    errors = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if name == "none":
        return Path(errors).parents[2].name if errors else None
    return name


def run_begun_before_restart(root: Path, recipe: Recipe) -> Path | None:
    """The folder below `root` of a run of `recipe` that this torchrun began; None where there is nothing to go on with.

    A run that is complete counts only for processes that were started again, which then have nothing left to do.
    """
    name, again = launch(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if name is None:
        return None
    for path in sorted(root.glob(f"{glob.escape(recipe.name)}-*/settings.json"), reverse=True):
        folder = path.parent
        if Settings.read(folder).launch != name or (not again and _complete(folder)):
            continue
        if Recipe.from_toml(_io.text(folder / "recipe.toml"), folder / "recipe.toml") == recipe:
            return folder
        if again:
            raise InvalidInput(
                f"the recipe is another one than when {folder} was started.",
                hint=f"go on with noisette resume {quote(str(folder))}, or start torchrun anew",
            )
    return None


def _complete(folder: Path) -> bool:
    points = metrics.read(folder)
    return bool(points) and points[-1].paid == points[-1].total
