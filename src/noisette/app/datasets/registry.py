"""Data sets by name, as the command line gives them."""

from __future__ import annotations

import difflib
from pathlib import Path

from noisette.app.datasets._published_files import data_root
from noisette.app.datasets.base import Dataset
from noisette.app.datasets.sources import Source, sources
from noisette.errors import InvalidInput

__all__ = ["file_without_bounds", "load", "population", "public_bounds_of", "within"]


def load(
    name: str, root: str | Path | None = None, unit: str = "", target_bounds: tuple[float, float] | None = None
) -> Dataset:
    """The data set called `name`; of a table, the column `unit` may say whose row each is.

    With public `target_bounds`, the target of a table is a number to predict, and no label.

    ``digits`` and ``breast-cancer`` need no file. ``mnist``, ``fashion-mnist`` and ``cifar10`` are read from `root`,
    otherwise from the environment's NOISETTE_DATA, otherwise from ``./data``, and held to their SHA-256. Your own data
    has these forms: ``csv:PATH:TARGET`` for a table (`Dataset.from_csv`), ``csv:PATH:TARGET:0.2`` to hold out a fifth
    of its rows as public test rows, and ``folder:PATH`` for images (`Dataset.from_folder`). Bounds of a table's columns
    are read from ``NAME.bounds.toml`` beside ``NAME.csv``, where there is one.

    >>> load("digits").classes
    10
    """
    source, rest = _find(name)
    if source is None:
        known = [one.name for one in sources().values() if not one.forms]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or known
        forms = ", ".join(form for one in sources().values() for form in one.forms)
        raise InvalidInput(f"there is no data set {name!r}.", hint=f"did you mean {', '.join(near)}? Your own: {forms}")
    if unit or target_bounds is not None:
        return source.load_columns(rest, unit, target_bounds)
    return source.load(rest, data_root(root))


def population(name: str) -> str:
    """A name for the people in the data set called `name`: whatever column is asked for, a file has the same people.

    It is the default for the owner of a ledger, who may know better: the same people may be in two files.

    >>> population("csv:cells.csv:malignant:0.2") == population("csv:./cells.csv:radius")
    True
    >>> population("digits")
    'digits'
    """
    source, rest = _find(name)
    return name if source is None else source.people(rest)


def public_bounds_of(name: str) -> str:
    """The data set called `name`, by a name that means the same one from every folder.

    >>> public_bounds_of("csv:/data/cells.csv:malignant:0.2"), public_bounds_of("digits")
    ('csv:/data/cells.csv:malignant:0.2', 'digits')
    """
    source, rest = _find(name)
    return f"{source.name}:{source.settled(rest)}" if source is not None and rest else name


def file_without_bounds(name: str) -> Path | None:
    """The file that bounds of the table called `name` would be read from, where it is not there; else None.

    >>> file_without_bounds("csv:nowhere/cells.csv:malignant").name, file_without_bounds("digits")
    ('cells.bounds.toml', None)
    """
    source, rest = _find(name)
    return None if source is None else source.unbounded(rest)


def within(name: str, of: str) -> bool:
    """Whether the test part of the data set `name` is, for certain, within that of `of`, which has the same people.

    Then no test example of `name` is a training example of `of`.

    >>> within("csv:cells.csv:malignant:0.1", "csv:./cells.csv:malignant:0.2")
    True
    >>> within("csv:cells.csv:malignant:0.9", "csv:cells.csv:malignant:0.2")
    False
    """
    (source, rest), (other, its) = _find(name), _find(of)
    return source is not None and type(source) is type(other) and source.within(rest, its)


def _find(name: str) -> tuple[Source | None, str]:
    """The source that `name` means, if any, and what it is told; one that takes nothing is told nothing."""
    first, colon, rest = name.partition(":")
    source = sources().get(first)
    if source is None or not (rest if source.forms else not colon):
        return None, ""
    return source, rest
