"""Data sets: some by name, and your own from arrays, tables and image folders."""

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.download import fetch
from noisette.app.datasets.registry import load, people, settled, unbounded, within

__all__ = ["Dataset", "fetch", "load", "people", "settled", "unbounded", "within"]
