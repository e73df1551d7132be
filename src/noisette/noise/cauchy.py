"""Cauchy noise: no mean, no variance, and still a finite epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from noisette.noise.base import Array, Noise
from noisette.noise.regions import quadratic


@dataclass(frozen=True)
class Cauchy(Noise):
    """Cauchy law; half of its mass lies within one `scale` of zero.

    >>> Cauchy(scale=1.0).std
    inf
    """

    scale: float | None = None
    certified: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.3)

    def _log_prob(self, x: Array) -> Array:
        return -np.log1p(x * x) - math.log(math.pi)

    def _sf(self, x: Array) -> Array:
        return np.arctan2(1.0, x) / np.pi

    def _magnitude(self, u: Array) -> Array:
        return 1.0 / np.tan(np.pi / 2 * u)

    def _score(self, x: Array) -> Array:
        return 2 * x / (1 + x * x)

    def _region(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return quadratic(eps, tau, df=1.0)

    def _std(self) -> float:
        return math.inf

    def _mean_abs(self) -> float:
        return math.inf

    def _fisher(self) -> float:
        return 0.5
