"""How many runs a search makes: laws of a random number K, whose mean is public and whose value is not.

A law enters the price of a search (docs/selection.md) by the slope of its generating function f(x) = E x^K alone:
a run whose score has the share t of all runs above it wins with a density f'(1 - t) times its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from noisette._spec import Spec, real, registered
from noisette.errors import InvalidInput
from noisette.random import Generator

__all__ = [
    "MOST_TRIALS",
    "GeometricNumTrials",
    "LogarithmicNumTrials",
    "NumTrials",
    "PoissonNumTrials",
    "num_trials_from_name",
    "trial_distributions",
]

Array = npt.NDArray[np.float64]

_ULP = 2.0**-52
_ROUNDED = 64 * _ULP
"""An end between two numbers of runs is missed by a few roundings of its size; docs/selection.md adds them up."""

MOST_TRIALS = 10_000
"""The largest mean: a search of more would never end."""


@dataclass(frozen=True)
class NumTrials(Spec):
    """A law of K with a `mean` of at least 1; `name` is what the command line calls it."""

    mean: float
    name: ClassVar[str]

    def __post_init__(self) -> None:
        mean = real("trials", self.mean)
        if not 1 <= mean <= MOST_TRIALS:
            raise InvalidInput(
                f"trials is {self.mean!r}, outside 1 to {MOST_TRIALS}.",
                hint="give the number of runs that a search makes on average, like 20",
            )
        self._set(mean=mean)

    @abstractmethod
    def log_pgf_slope(self, t: Array) -> Array:
        """Log of f'(1 - t) / f'(1) at every t in [0, 1]: 0 at 0, and falling."""

    @abstractmethod
    def draw(self, generator: Generator) -> int:
        """One K, of this law but for `error`."""

    @property
    @abstractmethod
    def error(self) -> float:
        """The distance in total variation of what is drawn, in floats, from the law; from above."""

    @abstractmethod
    def quantile_bound(self, chance: float) -> int:
        """A number that K exceeds with at most this `chance`."""


@final
@dataclass(frozen=True)
class GeometricNumTrials(NumTrials):
    """P(K = k) = p (1 - p)^(k - 1) for k >= 1, with p = 1 / mean.

    >>> GeometricNumTrials(10).log_pgf_slope(np.array([0.5, 1.0])).round(3).tolist()
    [-3.409, -4.605]
    """

    name: ClassVar[str] = "geometric"

    def log_pgf_slope(self, t: Array) -> Array:
        return np.asarray(-2 * np.log1p((self.mean - 1) * t))

    @property
    def _log(self) -> float:
        """Log of 1 - p, in a form that is right however close p is to 0 or 1."""
        return -math.log1p(1 / (self.mean - 1)) if self.mean > 1 else -math.inf

    def draw(self, generator: Generator) -> int:
        return max(1, math.ceil(math.log(generator.uniforms(1)[0]) / self._log))

    @property
    def error(self) -> float:
        return self.mean * _ROUNDED

    def quantile_bound(self, chance: float) -> int:
        return max(1, math.ceil(math.log(chance) / self._log))


@final
@dataclass(frozen=True)
class LogarithmicNumTrials(NumTrials):
    """P(K = k) proportional to (1 - p)^k / k for k >= 1: a cheaper search, more often of one run and of very many.

    >>> LogarithmicNumTrials(10).log_pgf_slope(np.array([1.0])).round(3).tolist()
    [-3.615]
    """

    name: ClassVar[str] = "logarithmic"

    @cached_property
    def _log(self) -> float:
        """Log of 1 / p, with (1 / p - 1) / log(1 / p) = mean."""
        from scipy.optimize import brentq  # noqa: PLC0415 - not needed to write a law down

        if self.mean == 1:
            return 0.0
        return float(brentq(lambda x: math.expm1(x) / x - self.mean, 1e-9, 50.0, xtol=1e-15, rtol=1e-15))

    def log_pgf_slope(self, t: Array) -> Array:
        return np.asarray(-np.log1p(math.expm1(self._log) * t))

    def draw(self, generator: Generator) -> int:
        """A geometric number whose own chance is drawn (Kemp 1981)."""
        first, second = generator.uniforms(2)
        if self.mean == 1:
            return 1
        x = self._log * first
        # log of 1 - e^-x, in the form that is right for its own size
        chance = math.log1p(-math.exp(-x)) if x > math.log(2) else math.log(-math.expm1(-x))
        return 1 + math.floor(math.log(second) / chance)

    @property
    def error(self) -> float:
        return self.mean * _ROUNDED

    def quantile_bound(self, chance: float) -> int:
        """From P(K > k) <= (1 - p)^k / (p log(1 / p))."""
        if self.mean == 1:
            return 1
        rate = -math.log(-math.expm1(-self._log))  # of (1 - p)^k in k
        return max(1, math.ceil((self._log - math.log(self._log) - math.log(chance)) / rate))


@final
@dataclass(frozen=True)
class PoissonNumTrials(NumTrials):
    """P(K = k) = e^-mean mean^k / k!, which may be 0: a number of runs close to its mean, at a price.

    >>> PoissonNumTrials(10).log_pgf_slope(np.array([0.5, 1.0])).tolist()
    [-5.0, -10.0]
    """

    name: ClassVar[str] = "poisson"

    def log_pgf_slope(self, t: Array) -> Array:
        return np.asarray(-self.mean * t)

    def draw(self, generator: Generator) -> int:
        count, left = 0, self.mean + math.log(generator.uniforms(1)[0])
        while left > 0:
            count, left = count + 1, left + math.log(generator.uniforms(1)[0])
        return count

    @property
    def error(self) -> float:
        return (self.mean + 100) * (2 * self.mean + 100) * _ULP

    def quantile_bound(self, chance: float) -> int:
        """From P(K >= k) <= e^(k - mean) (mean / k)^k for k above the mean."""
        low, high = math.floor(self.mean), math.ceil(4 * self.mean + 800)  # e^-800 is less than any float
        while high - low > 1:
            k = (low + high) // 2
            likely = k - self.mean + k * math.log(self.mean / k) > math.log(chance)
            low, high = (k, high) if likely else (low, k)
        return high - 1


def trial_distributions() -> list[str]:
    """The names of the laws.

    >>> trial_distributions()
    ['geometric', 'logarithmic', 'poisson']
    """
    return sorted(law.name for law in registered(NumTrials).values())


def num_trials_from_name(law: str, mean: float) -> NumTrials:
    """The law called `law` with this mean.

    >>> num_trials_from_name("poisson", 20)
    PoissonNumTrials(mean=20.0)
    """
    for one in registered(NumTrials).values():
        if one.name == law:
            return one(mean)
    raise InvalidInput(f"law is {law!r}, not known.", hint=f"choose one of {', '.join(trial_distributions())}")
