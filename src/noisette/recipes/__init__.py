"""Recipes: training runs as files, and the folders that they leave behind."""

from noisette.recipes.folder import OpenRun, load, new_folder, reopen, start
from noisette.recipes.recipe import Recipe, names

__all__ = ["OpenRun", "Recipe", "load", "names", "new_folder", "reopen", "start"]
