"""Units: whose example is whose. A person with many examples is drawn as one, and encoded as one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Self

import numpy as np
from torch import Tensor

from noisette._spec import whole
from noisette.errors import InvalidInput
from noisette.random import Generator
from noisette.training._datasets import Index

__all__ = ["Units", "encode_ids", "is_missing_id"]

_NOTHING = {"", "nan", "NaN", "NaT", "<NA>", "None", "null", "NULL"}
"""What programs write where there is nothing: arrays of text and tables have it in the place of an id."""


def encode_ids(ids: Any) -> Index:
    """A number for every id, (N,): the same for equal ones, counted in the order in which they first come.

    Ids are of any hashable type. A missing one (None, NaN, an empty text, what programs write for these) is an error:
    the example is somebody's.

    >>> encode_ids(["ada", "bob", "ada"]).tolist()
    [0, 1, 0]
    """
    given = _listed(ids)
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InvalidInput(f"units are {type(ids).__name__}, not ids.", hint="give one id for each example, in order")
    seen: dict[Hashable, int] = {}
    found = []
    for one in given:
        if isinstance(one, Tensor):
            raise InvalidInput(
                "an id is a tensor, which equals no other.", hint="give numbers or texts: ids.tolist() has them"
            )
        try:
            found.append(seen.setdefault(one, len(seen)))
        except TypeError:
            raise InvalidInput(
                f"an id is a {type(one).__name__}, which cannot be told from others.",
                hint="give one number, text or other hashable value for each example",
            ) from None
    if any(map(is_missing_id, seen)):
        raise InvalidInput(
            "some examples have no id (None, NaN, an empty text or a word for them).",
            hint="give those ids, each its own where nobody knows better, or leave the examples out",
        )
    return np.array(found, dtype=np.int64)


def _listed(ids: Any) -> Any:
    """`ids` of a tensor, an array, or a column of a table as Python's own values."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "mM":
        return list(ids)  # as Python's own, times would be numbers, and those that are missing as well
    for name in ("tolist", "to_list", "to_pylist"):  # torch, numpy and pandas; polars; pyarrow
        if hasattr(ids, name):
            return getattr(ids, name)()
    return ids


def is_missing_id(one: object) -> bool:
    """Whether an id says nothing: None, NaN, or a text that stands for them; also as a part of a tuple.

    >>> is_missing_id("ada"), is_missing_id(""), is_missing_id(("ward 3", float("nan")))
    (False, True, True)
    """
    try:
        if isinstance(one, tuple):
            return not one or any(part is not None and bool(part != part) for part in one)  # noqa: PLR0124
        text = one.decode(errors="replace") if isinstance(one, bytes) else one
        return one is None or (isinstance(text, str) and text.strip() in _NOTHING) or bool(one != one)  # noqa: PLR0124
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True


class Units:
    """Which examples belong to which unit, and how many of a unit's are taken when it is drawn.

    >>> units = Units.of(["ada", "bob", "ada", "ada"], examples=4, per_unit=2)
    >>> len(units)
    2
    >>> index, groups = units.sample_members(np.array([0, 1]), Generator(seed=0))
    >>> groups.tolist(), index[-1]
    ([0, 0, 1], np.int64(1))
    """

    def __init__(self, numbers: Index, per_unit: int) -> None:
        self.numbers, self.per_unit = numbers, per_unit
        self._sizes = np.bincount(numbers)
        self._order = np.argsort(numbers, kind="stable")
        self._starts = np.cumsum(self._sizes) - self._sizes

    @classmethod
    def of(cls, ids: Any, examples: int, per_unit: int) -> Self:
        """The units of so many `examples`, each with an id."""
        numbers = encode_ids(ids)
        if len(numbers) != examples:
            raise InvalidInput(
                f"there are {len(numbers)} ids for {examples} examples.", hint="give one id for each example, in order"
            )
        return cls(numbers, whole("per_unit", per_unit, least=1))

    def __len__(self) -> int:
        return len(self._sizes)

    def sample_members(self, drawn: Index, generator: Generator) -> tuple[Index, Index]:
        """Of the units `drawn` (k,), at most `per_unit` examples each, at random: indices (n,) and their groups (n,).

        Groups count from 0 in the order of `drawn`, and ascend.
        """
        sizes = self._sizes[drawn]
        groups = np.repeat(np.arange(len(drawn)), sizes)
        ends = np.cumsum(sizes)
        within = np.arange(len(groups)) - np.repeat(ends - sizes, sizes)  # counts a unit's examples from 0
        index = self._order[np.repeat(self._starts[drawn], sizes) + within]
        shuffled = np.lexsort((generator.uniforms(len(groups)), groups))  # groups stay in order: so `within` still fits
        kept = shuffled[within < self.per_unit]
        return index[kept], groups[kept]
