"""Data sets by name, as the command line gives them."""

from __future__ import annotations

import difflib
from pathlib import Path

from noisette.data.base import Dataset
from noisette.data.bounds import beside
from noisette.data.files import data_root
from noisette.data.published import PUBLISHED
from noisette.errors import InvalidInput

__all__ = ["load", "people"]

_FORMS = "csv:PATH:TARGET, csv:PATH:TARGET:TEST_FRACTION or folder:PATH"


def load(name: str, root: str | Path | None = None) -> Dataset:
    """The data set called `name`.

    ``digits`` and ``breast-cancer`` need no file. ``mnist``, ``fashion-mnist`` and ``cifar10`` are read from `root`,
    otherwise from the environment's NOISETTE_DATA, otherwise from ``./data``, and held to their SHA-256. Your own data
    has these forms: ``csv:PATH:TARGET`` for a table (`Dataset.from_csv`), ``csv:PATH:TARGET:0.2`` to hold out a fifth
    of its rows as public test rows, and ``folder:PATH`` for images (`Dataset.from_folder`). Bounds of a table's columns
    are read from ``NAME.bounds.toml`` beside ``NAME.csv``, where there is one.

    >>> load("digits").classes
    10
    """
    form, _, rest = name.partition(":")
    if form == "folder" and rest:
        return Dataset.from_folder(rest)
    if form == "csv" and rest:
        path, target, fraction = _table(name, rest)
        return Dataset.from_csv(path, target, fraction, beside(Path(path)))
    if name == "digits":
        from noisette.data.digits import digits  # noqa: PLC0415 - scikit-learn takes a second to import

        return digits()
    if name == "breast-cancer":
        from noisette.data.breast_cancer import breast_cancer  # noqa: PLC0415 - likewise

        return breast_cancer()
    if name in PUBLISHED:
        return PUBLISHED[name].load(data_root(root))
    known = ["digits", *PUBLISHED, "breast-cancer"]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or known
    raise InvalidInput(f"there is no data set {name!r}.", hint=f"did you mean {', '.join(near)}? Your own: {_FORMS}")


def people(name: str) -> str:
    """A name for the people in the data set called `name`: whatever column is asked for, a file has the same people.

    It is the default for the owner of a ledger, who may know better: the same people may be in two files.

    >>> people("csv:cells.csv:malignant:0.2") == people("csv:./cells.csv:radius")
    True
    >>> people("digits")
    'digits'
    """
    form, _, rest = name.partition(":")
    if form == "csv" and rest:
        rest = _table(name, rest)[0]
    return f"{form}:{Path(rest).resolve()}" if form in ("csv", "folder") and rest else name


def _table(name: str, rest: str) -> tuple[str, str, float]:
    path, _, last = rest.rpartition(":")
    try:
        fraction = float(last)
    except ValueError:
        target, fraction = last, 0.0
    else:
        path, _, target = path.rpartition(":")
    if not path or not target:
        raise InvalidInput(f"{name!r} does not say which column is the label.", hint=f"write {_FORMS}")
    return path, target, fraction
