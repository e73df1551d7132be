"""Profiles: what an encoded gradient's sorted magnitudes may be at most, rank by rank.

A profile is a list of ascending (level, count) pairs: the smallest `count` magnitudes are at most the first level,
and so on. Levels make accounting exact and cheap (its cost grows with the levels, not with the dimension). A
`Profiles` value is a family: written down once, before private data is seen, and built for a dimension when needed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.noise import GeneralizedGaussian, Noise
from noisette.spec import Spec, positive, real, whole

__all__ = [
    "Blocks",
    "Empirical",
    "HalfNormal",
    "PaperGaussian",
    "Power",
    "ProfileSet",
    "Profiles",
    "Quantiles",
    "Tails",
]

Array = npt.NDArray[np.float64]

_SLACK = 2.0**-48
_MOST_VALUES = 200_000_000


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
        squares = (levels * levels) @ counts.astype(np.float64)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "counts", counts.astype(np.int64))
        object.__setattr__(self, "norms", np.sqrt(squares) * (1 + _rounding(counts.size)))

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
        if np.any(self.norms > radius):
            raise InvalidInput(
                f"a profile has norm {self.norms.max():.6g}, above {radius:.6g}.",
                hint="ProfileSet.normalized scales it; a bigger radius belongs to the encoder",
            )
        return self

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
    [250, 250, 250, 200, 40, 8, 1, 1]
    """
    if dim <= levels:
        return np.ones(dim, dtype=np.int64)
    even = np.linspace(0, dim, levels // 2 + 1)[:-1]
    top = dim - even[-1]
    fine = dim - np.geomspace(top, 1, levels - len(even) + 1)[1:]
    edges = np.unique(np.rint(np.concatenate([even, fine, [dim]])).astype(np.int64))
    return np.diff(edges)


class _FromQuantiles(Profiles):
    """Deterministic quantiles: the level of a block of ranks is the root mean square of the law's magnitudes there."""

    levels: int

    @abstractmethod
    def _magnitudes(self, u: Array) -> Array:
        """(n, *u.shape) magnitudes that a share `u` of the coordinates exceeds."""

    def __post_init__(self) -> None:
        self._set(levels=whole("levels", self.levels, least=1))

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        counts = rank_counts(dim, self.levels)
        ends = np.cumsum(counts)
        inner = (np.arange(16) + 0.5) / 16
        ranks = (ends - counts)[:, None] + counts[:, None] * inner
        values = self._magnitudes(1 - ranks / dim)
        return (ProfileSet.normalized(np.sqrt(np.mean(values**2, axis=-1)), counts),)


@dataclass(frozen=True)
class HalfNormal(_FromQuantiles):
    """Quantiles of |N(0, 1)|: what the paper's Gaussian samples tend to in high dimension.

    >>> len(HalfNormal().build(26010)[0].counts)
    32
    """

    levels: int = 32

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(levels=5)

    def _magnitudes(self, u: Array) -> Array:
        return np.asarray(-special.ndtri(u / 2))[None]


@dataclass(frozen=True)
class Quantiles(_FromQuantiles):
    """Quantiles of any registered law: Laplace tails, Student-t tails, your own.

    >>> from noisette import StudentT
    >>> Quantiles(law=StudentT(df=3)).build(100)[0].dim
    100
    """

    law: Noise
    levels: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.law, Noise):
            raise InvalidInput(f"law is {self.law!r}, not a noise.", hint="write for example Quantiles(law=Laplace())")
        self._set(law=self.law.replace(scale=1.0))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return tuple(cls(law.examples()[0]) for law in (GeneralizedGaussian,))

    def _magnitudes(self, u: Array) -> Array:
        return self.law.magnitude(u)[None]


@dataclass(frozen=True)
class Power(_FromQuantiles):
    """The j-th largest magnitude proportional to j**-exponent.

    >>> Power(exponent=0.5).build(100)[0].dim
    100
    """

    exponent: float = 0.5
    levels: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(exponent=positive("exponent", self.exponent))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(exponent=1.5)

    def _magnitudes(self, u: Array) -> Array:
        return (u**-self.exponent)[None]


@dataclass(frozen=True)
class Tails(_FromQuantiles):
    """One profile for each of several tail weights: quantiles of exp(-|x|^shape) laws.

    Per-example gradients range from dense to very peaky, and each picks the profile nearest to it.

    >>> len(Tails().build(1000)[0])
    6
    """

    shapes: tuple[float, ...] = (2.0, 1.0, 0.7, 0.5, 0.4, 0.3)
    levels: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shapes:
            raise InvalidInput("shapes is empty.", hint="give at least one, like (2.0, 1.0)")
        self._set(shapes=tuple(positive("shape", shape) for shape in self.shapes))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(shapes=(2.0, 0.5), levels=8)

    def _magnitudes(self, u: Array) -> Array:
        return np.stack([GeneralizedGaussian(shape, 1.0).magnitude(u) for shape in self.shapes])


@dataclass(frozen=True)
class PaperGaussian(Profiles):
    """The paper's set: n vectors of iid Gaussian samples, magnitudes below `threshold` set to zero, sorted, unit norm.

    >>> PaperGaussian(n=3).build(10)[0].levels.shape
    (3, 10)
    """

    n: int = 1000
    seed: int = 0
    threshold: float = 1e-5

    def __post_init__(self) -> None:
        self._set(
            n=whole("n", self.n, least=1),
            seed=whole("seed", self.seed, least=0),
            threshold=real("threshold", self.threshold),
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(n=7), cls(n=3, seed=1, threshold=0.5)

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if self.n * dim > _MOST_VALUES:
            raise InvalidInput(
                f"{self.n} sampled profiles of {dim} coordinates do not fit into memory.",
                hint="use HalfNormal(), their limit, or a smaller n",
            )
        # the library's own stream: the same profiles for a seed whatever numpy's version
        u = Generator(self.seed, purpose="profiles").uniforms(self.n * dim).reshape(self.n, dim)
        magnitudes = np.sort(-special.ndtri(u / 2), axis=1)
        magnitudes[magnitudes < self.threshold] = 0.0
        return (ProfileSet.normalized(magnitudes, np.ones(dim, dtype=np.int64)),)


@dataclass(frozen=True)
class Empirical(Profiles):
    """A measured profile: (level, count) pairs from gradients of PUBLIC or synthetic data.

    >>> profile = Empirical.from_gradients(torch.randn(8, 100), levels=10)
    >>> profile.build(100)[0].dim
    100
    """

    levels: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        self._set(
            levels=tuple(real("level", level) for level in self.levels),
            counts=tuple(whole("count", count, least=1) for count in self.counts),
        )
        ProfileSet(np.array([self.levels]), np.array(self.counts, dtype=np.int64)).within(1.0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(levels=(0.0, 0.05, 0.3), counts=(20, 25, 5)), cls(levels=(0.14,), counts=(50,))

    @classmethod
    def from_gradients(cls, rows: torch.Tensor, levels: int = 64) -> Self:
        """The mean sorted profile of per-example gradients `rows` (B, d), which must not come from private data."""
        magnitudes = np.sort(rows.detach().double().abs().cpu().numpy(), axis=1)
        norms = np.linalg.norm(magnitudes, axis=1, keepdims=True)
        kept = np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)
        if not kept.any():
            raise InvalidInput("no gradient is finite and non-zero.", hint="give gradients of a few public examples")
        mean = np.mean(magnitudes[kept] / norms[kept], axis=0)
        counts = rank_counts(len(mean), levels)
        squares = np.add.reduceat(mean * mean, np.cumsum(counts) - counts) / counts
        built = ProfileSet.normalized(np.sqrt(squares), counts)
        return cls(tuple(built.levels[0].tolist()), tuple(counts.tolist()))

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if dim != sum(self.counts):
            raise InvalidInput(
                f"the profile was measured in {sum(self.counts)} dimensions, the encoder has {dim}.",
                hint="measure it on the model that will be trained",
            )
        return (ProfileSet(np.array([self.levels]), np.array(self.counts, dtype=np.int64)),)


@dataclass(frozen=True)
class Blocks(Profiles):
    """One profile per block of consecutive coordinates (a parameter tensor, say), each with a share of the squared norm.

    Free in accounting: the bound runs over all coordinates, and the shares sum to at most 1. Shares default to each
    block's part of the dimension.

    >>> [block.dim for block in Blocks(dims=(30, 20)).build(50)]
    [30, 20]
    """

    dims: tuple[int, ...]
    shares: tuple[float, ...] | None = None
    profiles: Profiles = HalfNormal()

    def __post_init__(self) -> None:
        self._set(dims=tuple(whole("block dim", dim, least=1) for dim in self.dims))
        if not self.dims:
            raise InvalidInput("dims is empty.", hint="give the number of coordinates of each block")
        if self.shares is not None:
            self._set(shares=tuple(positive("share", share) for share in self.shares))
            if len(self.shares) != len(self.dims) or math.fsum(self.shares) > 1:
                raise InvalidInput(
                    f"shares {self.shares} are not one for each block with a sum of at most 1.",
                    hint="give as many shares as dims, or none",
                )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(dims=(30, 20)), cls(dims=(10, 40), shares=(0.5, 0.25), profiles=Tails())

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if dim != sum(self.dims):
            raise InvalidInput(
                f"the blocks hold {sum(self.dims)} coordinates, the encoder {dim}.", hint="list every tensor"
            )
        shares = self.shares or tuple(size / dim * (1 - _SLACK) for size in self.dims)
        built = []
        for size, share in zip(self.dims, shares, strict=True):
            built += [part.scaled(math.sqrt(share) * (1 - _SLACK)) for part in self.profiles.build(size)]
        return tuple(built)
