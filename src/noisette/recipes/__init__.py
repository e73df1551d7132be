"""Recipes: training runs as files, and the folders that they leave behind."""

from noisette.recipes.folder import Session, load, new_folder, reopen, start
from noisette.recipes.recipe import Recipe, names

__all__ = ["Recipe", "Session", "load", "names", "new_folder", "reopen", "start"]
