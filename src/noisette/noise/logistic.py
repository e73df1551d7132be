"""Logistic noise: a smooth Laplace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy import special

from noisette.noise._loss_regions import hyperbolic, log_cosh_ratio
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise


@dataclass(frozen=True)
class Logistic(Noise):
    """Logistic law; its standard deviation is scale * pi / sqrt(3).

    >>> round(Logistic(scale=1.0).fisher_information, 4)
    0.3333
    """

    scale: float | None = None
    certified: ClassVar[bool] = True
    sampling_error: ClassVar[Accuracy | None] = Accuracy(position=8)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(0.4)

    def _log_prob(self, x: Array) -> Array:
        return np.asarray(-np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))))

    def _standard_sf(self, x: Array) -> Array:
        return np.asarray(special.expit(-x))

    def _abs_quantile(self, u: Array) -> Array:
        return np.log(2 / u - 1)

    def _loss(self, y: Array, tau: float) -> Array:
        return 2 * log_cosh_ratio(y / 2, tau / 2)

    def _largest_loss(self, tau: Array) -> Array:
        return tau  # its limit far out; the law is log-concave

    def _score(self, x: Array) -> Array:
        return np.tanh(x / 2)

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return 2 * hyperbolic(eps / 2, tau / 2), np.full_like(eps, np.inf)

    def _std(self) -> float:
        return math.pi / math.sqrt(3)

    def _mean_abs(self) -> float:
        return 2 * math.log(2)

    def _fisher(self) -> float:
        return 1 / 3
