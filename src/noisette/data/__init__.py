"""Data sets: some by name, and your own from arrays, tables and image folders."""

from noisette.data.base import Dataset
from noisette.data.fetch import fetch
from noisette.data.load import load, people, settled, unbounded, within

__all__ = ["Dataset", "fetch", "load", "people", "settled", "unbounded", "within"]
