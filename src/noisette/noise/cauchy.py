"""Cauchy noise: no mean, no variance, and still a finite epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy import special

from noisette.noise._loss_regions import log_quadratic_ratio, quadratic
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise


@dataclass(frozen=True)
class Cauchy(Noise):
    """Cauchy law; half of its mass lies within one `scale` of zero.

    >>> Cauchy(scale=1.0).std
    inf
    """

    scale: float | None = None
    certified: ClassVar[bool] = True
    sampling_error: ClassVar[Accuracy | None] = Accuracy(position=8)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.3)

    def _log_prob(self, x: Array) -> Array:
        return -np.log1p(x * x) - math.log(math.pi)

    def _standard_sf(self, x: Array) -> Array:
        return np.arctan2(1.0, x) / np.pi

    def _abs_quantile(self, u: Array) -> Array:
        return 1.0 / np.tan(np.pi / 2 * u)

    def _loss(self, y: Array, tau: float) -> Array:
        return log_quadratic_ratio(y, tau, df=1.0)

    def _largest_loss(self, tau: Array) -> Array:
        return 2 * np.arcsinh(tau / 2)

    def _score(self, x: Array) -> Array:
        return 2 * x / (1 + x * x)

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return quadratic(eps, tau, df=1.0)

    def _log_moments(self, orders: Array, tau: float) -> Array | None:
        # the Legendre polynomial P_{k-1}(1 + tau^2/2) as its series about 1, all of whose terms are positive
        n = (orders - 1)[:, None]
        j = np.arange(1, max(2, int(orders.max())))
        valid = j <= n
        gammas = (
            special.gammaln(n + j + 1) - special.gammaln(np.where(valid, n - j, 0) + 1) - 2 * special.gammaln(j + 1)
        )
        terms = np.where(valid, gammas + j * (2 * math.log(tau) - math.log(4)), -np.inf)
        return np.asarray(np.logaddexp(0.0, special.logsumexp(terms, axis=1)))

    def _std(self) -> float:
        return math.inf

    def _mean_abs(self) -> float:
        return math.inf

    def _fisher(self) -> float:
        return 0.5
