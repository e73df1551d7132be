"""Recipes: training runs as files, and the folders that they leave behind."""

from noisette.app.recipes.recipe import Recipe, names

__all__ = ["Recipe", "names"]
