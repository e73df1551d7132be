"""Generalized Gaussian noise: density proportional to exp(-|x|^shape)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy import special

from noisette.noise._domain import Domain
from noisette.noise._rejection_sampler import strips
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise
from noisette.random import Generator


@dataclass(frozen=True)
class GeneralizedGaussian(Noise):
    """`shape` 1 is Laplace, 2 is Gaussian of standard deviation scale / sqrt(2), below 1 has heavy tails.

    The likelihood ratio is monotone for shape >= 1 (log-concave). Below 1, log z is convex on each side of 0, so the
    ratio rises up to tau and falls beyond.

    >>> round(GeneralizedGaussian(shape=1, scale=1.0).mean_abs, 12)
    1.0
    """

    shape: float
    scale: float | None = None
    certified: ClassVar[bool] = True
    # below, the law has no scale that a float could tell; above, it is uniform to a hundredth
    domain: ClassVar[Domain] = Domain(parameters={"shape": (0.2, 50.0)})
    survival_rel_error: ClassVar[float] = 2.0**-45

    @property
    def sampling_error(self) -> Accuracy | None:  # type: ignore[override]
        """Density by a power, of a position that is rounded itself."""
        return Accuracy(position=4, density=8 + 2 * self.shape, relative=strips(self).error)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.5, 1.0), cls(0.7, 0.5), cls(4, 1.0)

    def _log_prob(self, x: Array) -> Array:
        constant = math.log(self.shape / 2) - special.gammaln(1 / self.shape)
        return np.asarray(constant - np.abs(x) ** self.shape)

    def _standard_sf(self, x: Array) -> Array:
        a, y = 1 / self.shape, x**self.shape
        # y may underflow near 0, where the law is as good as uniform: y^a is x itself
        near = 0.5 - 0.5 * x / math.gamma(1 + a) * (1 - a / (1 + a) * y)
        return np.where(y < 1e-9, near, 0.5 * special.gammaincc(a, y))

    def _abs_quantile(self, u: Array) -> Array:
        a = 1 / self.shape
        y = np.asarray(special.gammainccinv(a, u))
        return np.where(y < 1e-9, (1 - u) * math.gamma(1 + a), y**a)

    def _sample(self, n: int, generator: Generator) -> Array:
        return strips(self).draw(n, generator)

    def _loss(self, y: Array, tau: float) -> Array:
        safe = np.where(y > tau, y, 1.0)
        near = np.abs(y + tau) ** self.shape - np.abs(y) ** self.shape
        return np.where(y > tau, safe**self.shape * np.expm1(self.shape * np.log1p(tau / safe)), near)

    def _largest_loss(self, tau: Array) -> Array:
        if self.shape > 1:
            return super()._largest_loss(tau)
        return np.asarray(tau**self.shape)  # powers below 1 are subadditive

    def _score(self, x: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x == 0, 0.0, np.sign(x) * self.shape * np.abs(x) ** (self.shape - 1))

    def _loss_mode(self, tau: float) -> float:  # noqa: ARG002 - the kink is where it is
        return math.inf if self.shape >= 1 else 0.0

    def _std(self) -> float:
        return math.exp(0.5 * (special.gammaln(3 / self.shape) - special.gammaln(1 / self.shape)))

    def _mean_abs(self) -> float:
        return math.exp(special.gammaln(2 / self.shape) - special.gammaln(1 / self.shape))

    def _fisher(self) -> float:
        if self.shape <= 0.5:
            return math.inf
        return self.shape**2 * math.exp(special.gammaln(2 - 1 / self.shape) - special.gammaln(1 / self.shape))
