"""Data sets: some by name, and your own from arrays, tables and image folders."""

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.download import fetch
from noisette.app.datasets.registry import file_without_bounds, load, population, public_bounds_of, within

__all__ = ["Dataset", "fetch", "file_without_bounds", "load", "population", "public_bounds_of", "within"]
