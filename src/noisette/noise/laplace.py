"""Laplace noise: pure differential privacy in one dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise


@dataclass(frozen=True)
class Laplace(Noise):
    """Laplace law; `scale` is its mean absolute value.

    >>> Laplace(scale=2.0).mean_abs
    2.0
    """

    scale: float | None = None
    certified: ClassVar[bool] = True
    sampling_error: ClassVar[Accuracy | None] = Accuracy(position=8)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.25)

    def _log_prob(self, x: Array) -> Array:
        return -np.abs(x) - math.log(2)

    def _standard_sf(self, x: Array) -> Array:
        return 0.5 * np.exp(-x)

    def _abs_quantile(self, u: Array) -> Array:
        return -np.log(u)

    def _loss(self, y: Array, tau: float) -> Array:
        return np.where(y >= 0, tau, np.abs(y + tau) - np.abs(y))

    def _largest_loss(self, tau: Array) -> Array:
        return tau

    def _score(self, x: Array) -> Array:
        return np.sign(x)

    def _forward(self, eps: Array, tau: float) -> Array:
        # in one piece, to full relative accuracy: losses sit at -tau and tau, and ten million coordinates would add up
        # what rounding puts between the two
        return np.maximum(-np.expm1((eps - tau) / 2), 0.0) * (1 + 2 * self.survival_rel_error)

    def _log_moments(self, orders: Array, tau: float) -> Array | None:
        # k/(2k-1) e^((k-1) tau) + (k-1)/(2k-1) e^(-k tau), less 1 and factored by the larger exponential
        up, down = orders / (2 * orders - 1), (orders - 1) / (2 * orders - 1)
        small = np.minimum((orders - 1) * tau, 1.0)
        near = np.log1p(up * np.expm1(small) + down * np.expm1(-orders * tau))
        far = (orders - 1) * tau + np.log(up + down * np.exp(-(2 * orders - 1) * tau))
        return np.where((orders - 1) * tau < 1, near, far)

    def _std(self) -> float:
        return math.sqrt(2)

    def _mean_abs(self) -> float:
        return 1.0

    def _fisher(self) -> float:
        return 1.0
