"""Laplace noise: pure differential privacy in one dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from noisette.noise.base import Array, Noise


@dataclass(frozen=True)
class Laplace(Noise):
    """Laplace law; `scale` is its mean absolute value.

    >>> Laplace(scale=2.0).mean_abs
    2.0
    """

    scale: float | None = None
    certified: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.25)

    def _log_prob(self, x: Array) -> Array:
        return -np.abs(x) - math.log(2)

    def _sf(self, x: Array) -> Array:
        return 0.5 * np.exp(-x)

    def _magnitude(self, u: Array) -> Array:
        return -np.log(u)

    def _score(self, x: Array) -> Array:
        return np.sign(x)

    def _region(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return np.where(eps < tau, (eps + tau) / 2, np.inf), np.full_like(eps, np.inf)

    def _std(self) -> float:
        return math.sqrt(2)

    def _mean_abs(self) -> float:
        return 1.0

    def _fisher(self) -> float:
        return 1.0
