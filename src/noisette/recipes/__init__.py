"""Recipes: training runs as files, and the folders that they leave behind."""

from noisette.recipes.assembly import Assembly
from noisette.recipes.folder import load, new_folder, reopen, start
from noisette.recipes.inputs import Seen
from noisette.recipes.open_run import OpenRun
from noisette.recipes.recipe import Recipe, names

__all__ = ["Assembly", "OpenRun", "Recipe", "Seen", "load", "names", "new_folder", "reopen", "start"]
