"""Profiles as values, and what a family of them must say about itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from noisette._spec import Spec
from noisette.errors import InvalidInput

__all__ = ["MOST_LEVELS", "MOST_VALUES", "Array", "ProfileSet", "Profiles", "build", "rank_counts"]

MOST_LEVELS = 10**6
"""Of one profile that is rounded to levels; a few dozen are usual."""
MOST_VALUES = 200_000_000
"""Numbers that a family may hold at a time: 1.6 GB."""

Array = npt.NDArray[np.float64]


def _rounding(terms: int) -> float:
    """Relative error that covers every rounding in the root of a sum of that many squares."""
    return (terms + 8) * 2.0**-52


@dataclass(frozen=True, eq=False)
class ProfileSet:
    """Profiles that share their counts: `levels` is (n, K), ascending along K; `counts` is (K,).

    The sum of count * level**2 is at most 1 for each, exactly: levels are rounded toward zero.

    >>> ProfileSet.normalized([[1.0, 2.0]], [2, 1]).norms.round(6).tolist()
    [1.0]
    """

    levels: Array
    counts: npt.NDArray[np.int64]
    norms: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        levels, counts = np.atleast_2d(np.asarray(self.levels, dtype=np.float64)), np.asarray(self.counts)
        if counts.ndim != 1 or levels.shape[1:] != counts.shape or counts.size == 0:
            raise InvalidInput(
                f"levels of shape {levels.shape} and counts of shape {counts.shape} do not belong together.",
                hint="give one count for every level",
            )
        if not np.issubdtype(counts.dtype, np.integer) or counts.min() < 1:
            raise InvalidInput(
                "a profile's counts are not all whole numbers of at least 1.", hint="leave empty levels out"
            )
        if not np.all(np.isfinite(levels)) or levels.min() < 0 or np.any(np.diff(levels, axis=1) < 0):
            raise InvalidInput(
                "a profile's levels are not finite, non-negative and ascending.", hint="sort magnitudes first"
            )
        # of level / largest, so that nothing under- or overflows
        largest = np.maximum(levels.max(axis=1), np.finfo(np.float64).tiny)
        squares = (levels / largest[:, None]) ** 2 @ counts.astype(np.float64)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "counts", counts.astype(np.int64))
        object.__setattr__(self, "norms", largest * np.sqrt(squares) * (1 + _rounding(counts.size)))

    @classmethod
    def normalized(cls, magnitudes: npt.ArrayLike, counts: npt.ArrayLike, share: float = 1.0) -> Self:
        """Profiles proportional to `magnitudes` (n, K), each with a squared norm of at most `share`."""
        raw = np.atleast_2d(np.asarray(magnitudes, dtype=np.float64))
        raw = raw / np.maximum(raw.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        repeats = np.asarray(counts, dtype=np.int64)
        squares = (raw * raw) @ repeats.astype(np.float64)
        if not np.all(np.isfinite(squares)) or np.any(squares == 0):
            raise InvalidInput("a profile has no positive, finite level.", hint="give at least one magnitude above 0")
        length = math.sqrt(share) * (1 - 4 * _rounding(repeats.size))
        return cls(raw * (length / np.sqrt(squares))[:, None], repeats).within(math.sqrt(share))

    def within(self, radius: float) -> Self:
        """Itself, or an error when a profile is longer than `radius`."""
        # `norms` are rounded up: a profile that is longer by rounding alone is looked at in exact arithmetic
        if any(self._square(row) > Fraction(radius) ** 2 for row in np.flatnonzero(self.norms > radius).tolist()):
            raise InvalidInput(
                f"a profile has norm {self.norms.max():.6g}, above {radius:.6g}.",
                hint="ProfileSet.normalized scales it; a bigger radius belongs to the encoder",
            )
        return self

    def _square(self, row: int) -> Fraction:
        pairs = zip(self.levels[row].tolist(), self.counts.tolist(), strict=True)
        return sum((count * Fraction(level) ** 2 for level, count in pairs), Fraction(0))

    def scaled(self, factor: float) -> ProfileSet:
        """The same profiles times `factor`."""
        return ProfileSet(self.levels * factor, self.counts)

    def envelope(self) -> ProfileSet:
        """One profile that is rank by rank at least as large as all of these."""
        return ProfileSet(self.levels.max(axis=0, keepdims=True), self.counts)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return int(self.counts.sum())

    def __len__(self) -> int:
        return len(self.levels)

    def __iter__(self) -> Iterator[ProfileSet]:
        return (ProfileSet(row[None], self.counts) for row in self.levels)


class Profiles(Spec):
    """A family of profiles, fixed before private data is seen."""

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """A few members for dimension 50, for tests and error messages."""

    @abstractmethod
    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        """Sets for consecutive blocks of coordinates, `dim` in all; most families have a single block."""


@lru_cache(maxsize=8)
def build(profiles: Profiles, dim: int) -> tuple[ProfileSet, ...]:
    """`profiles.build(dim)`, remembered: families are values, and some are large."""
    return profiles.build(dim)


def rank_counts(dim: int, levels: int) -> npt.NDArray[np.int64]:
    """Counts of at most `levels` blocks of ranks, ascending: half of them even, half ever finer toward the top rank.

    >>> rank_counts(1000, 8).tolist()
    [250, 250, 250, 187, 47, 12, 3, 1]
    """
    if dim <= levels:
        return np.ones(dim, dtype=np.int64)
    even = np.linspace(0, dim, max(levels // 2, 1) + 1)[:-1]
    top = dim - even[-1]
    fine = dim - np.geomspace(top, 1, levels - len(even) + 1)[1:]
    edges = np.unique(np.rint(np.concatenate([even, fine, [dim]])).astype(np.int64))
    return np.diff(edges)
