"""Hyperbolic secant noise: Gaussian in the middle, exponential in the tails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from noisette.noise._loss_regions import hyperbolic, log_cosh_ratio
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise

_CATALAN = 0.915965594177219015


@dataclass(frozen=True)
class Sech(Noise):
    """Density sech(pi x / 2) / 2; `scale` is its standard deviation.

    >>> Sech(scale=3.0).std
    3.0
    """

    scale: float | None = None
    certified: ClassVar[bool] = True
    sampling_error: ClassVar[Accuracy | None] = Accuracy(position=8)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.6)

    def _log_prob(self, x: Array) -> Array:
        y = np.pi / 2 * np.abs(x)
        return -y - np.log1p(np.exp(-2 * y))

    def _standard_sf(self, x: Array) -> Array:
        return 2 / np.pi * np.arctan(np.exp(-np.pi / 2 * x))

    def _abs_quantile(self, u: Array) -> Array:
        return -2 / np.pi * np.log(np.tan(np.pi / 4 * u))

    def _loss(self, y: Array, tau: float) -> Array:
        return log_cosh_ratio(np.pi / 2 * y, np.pi / 2 * tau)

    def _largest_loss(self, tau: Array) -> Array:
        return math.pi / 2 * tau  # its limit far out; the law is log-concave

    def _score(self, x: Array) -> Array:
        return np.pi / 2 * np.tanh(np.pi / 2 * x)

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return 2 / np.pi * hyperbolic(eps, np.pi / 2 * tau), np.full_like(eps, np.inf)

    def _std(self) -> float:
        return 1.0

    def _mean_abs(self) -> float:
        return 8 * _CATALAN / math.pi**2

    def _fisher(self) -> float:
        return math.pi**2 / 8
