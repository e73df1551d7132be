"""Deterministic profiles: the quantiles of a law, or of a power of the rank."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import special

from noisette._spec import entries, positive, whole
from noisette.encoders.profiles.base import MOST_LEVELS, MOST_VALUES, Array, Profiles, ProfileSet, rank_counts
from noisette.errors import InvalidInput
from noisette.noise import GeneralizedGaussian, Laplace, Noise, StudentT


class _FromQuantiles(Profiles):
    """Deterministic quantiles: the level of a block of ranks is the root mean square of the law's magnitudes there."""

    levels: int

    @abstractmethod
    def _magnitudes(self, u: Array) -> Array:
        """(n, *u.shape) magnitudes that a share `u` of the coordinates exceeds."""

    def __post_init__(self) -> None:
        self._set(levels=whole("levels", self.levels, least=1, most=MOST_LEVELS))

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

    >>> from noisette.noise import StudentT
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
        return cls(law=Laplace()), cls(law=StudentT(df=3))

    def _magnitudes(self, u: Array) -> Array:
        return self.law.magnitude(u)[None]


@dataclass(frozen=True)
class Power(Profiles):
    """The j-th largest magnitude proportional to j**-exponent.

    >>> Power(exponent=0.5).build(100)[0].dim
    100
    """

    exponent: float = 0.5
    levels: int = 32

    def __post_init__(self) -> None:
        self._set(
            exponent=positive("exponent", self.exponent), levels=whole("levels", self.levels, least=1, most=MOST_LEVELS)
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(exponent=1.5)

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if dim > MOST_VALUES:
            raise InvalidInput(
                f"the powers of {dim} ranks do not fit into memory.", hint="use Tails(), whose levels are all it takes"
            )
        counts = rank_counts(dim, self.levels)
        squares = np.arange(dim, 0, -1.0) ** (-2 * self.exponent)
        means = np.add.reduceat(squares, np.cumsum(counts) - counts) / counts
        return (ProfileSet.normalized(np.sqrt(means), counts),)


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
        self._set(shapes=entries("shapes", self.shapes))
        if not self.shapes:
            raise InvalidInput("shapes is empty.", hint="give at least one, like (2.0, 1.0)")
        self._set(shapes=tuple(positive("shape", shape) for shape in self.shapes))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(shapes=(2.0, 0.5), levels=8)

    def _magnitudes(self, u: Array) -> Array:
        return np.stack([GeneralizedGaussian(shape, 1.0).magnitude(u) for shape in self.shapes])
