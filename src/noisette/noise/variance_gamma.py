"""Variance-gamma noise: a Gaussian whose variance is itself drawn from a gamma law."""

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

_LAGUERRE = special.roots_laguerre(32)
_NEAR = 8.0
_FAR = 1e6  # beyond, the tail is zero in float64


@dataclass(frozen=True)
class VarianceGamma(Noise):
    """Density proportional to ``|x|^(shape-1/2) K_{shape-1/2}(|x|)``, of variance 2 * shape * scale**2.

    `shape` is lambda: 1 is Laplace, the paper uses 2. At or below 1/2 the density is infinite at zero, which no
    Renyi divergence survives, so it is refused. The ratio is monotone for shape >= 1 (log-concave); below, log z is
    convex on each side of 0, so the ratio rises up to tau and falls beyond.

    >>> VarianceGamma(shape=2, scale=1.0).std
    2.0
    """

    shape: float
    scale: float | None = None
    certified: ClassVar[bool] = True
    domain: ClassVar[Domain] = Domain(parameters={"shape": (0.501, 50.0)})
    survival_rel_error: ClassVar[float] = 2.0**-36

    @property
    def sampling_error(self) -> Accuracy | None:  # type: ignore[override]
        """Density by a Bessel function of scipy."""
        return Accuracy(position=4, density=256, relative=strips(self).error)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(2, 1.0), cls(1.3, 0.5), cls(0.8, 1.0), cls(4.5, 1.0)

    @property
    def _order(self) -> float:
        return self.shape - 0.5

    def _log_constant(self) -> float:
        return -0.5 * math.log(math.pi) - math.lgamma(self.shape) - self._order * math.log(2)

    def _log_prob(self, x: Array) -> Array:
        nu = self._order
        y = np.abs(x)
        at_zero = (nu - 1) * math.log(2) + math.lgamma(nu)
        # where K overflows, x is so small that the limit at zero, and for nu > 1 its next term, is all there is
        curvature = y * y / (4 * (nu - 1)) if nu > 1 else 0.0
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            bessel = np.log(special.kve(nu, y)) - y + nu * np.log(y)
            asymptotic = 0.5 * np.log(np.pi / 2 / y) - y + nu * np.log(y) + (4 * nu * nu - 1) / (8 * y)
            body = np.where(y > _FAR, asymptotic, np.where(np.isfinite(bessel), bessel, at_zero - curvature))
        return np.asarray(self._log_constant() + body)

    def _standard_sf(self, x: Array) -> Array:
        nu = self._order
        near = np.clip(x, 1e-300, _NEAR)
        # integral_0^x t^nu K_nu(t) dt in Struve functions; beyond _NEAR a Gauss-Laguerre rule keeps relative accuracy
        with np.errstate(over="ignore", invalid="ignore"):
            struve = near * (
                special.kv(nu, near) * special.modstruve(nu - 1, near)
                + special.kv(nu - 1, near) * special.modstruve(nu, near)
            )
        # where K overflows the density is flat
        body = np.where(np.isfinite(struve), struve, 2 * near * np.exp(self._log_prob(np.zeros_like(near))))
        nodes, weights = _LAGUERRE
        start = np.clip(x, _NEAR, _FAR)
        y = start[..., None] + nodes
        scaled = special.kve(nu, y) * np.exp(nu * np.log(y)) @ weights
        with np.errstate(under="ignore"):
            outer = np.exp(self._log_constant() - start + np.log(scaled))
        return np.asarray(np.where(x < _NEAR, 0.5 - 0.5 * body, outer))

    def _abs_quantile(self, u: Array) -> Array:
        """By bisection on `_standard_sf`: slow, but sampling hardly needs it."""
        below, above = np.zeros_like(u), np.full_like(u, 690.0)
        for _ in range(64):
            middle = (below + above) / 2
            over = 2 * self._standard_sf(middle) > u
            below, above = np.where(over, middle, below), np.where(over, above, middle)
        return below

    def _sample(self, n: int, generator: Generator) -> Array:
        return strips(self).draw(n, generator)

    def _largest_loss(self, tau: Array) -> Array:
        if self.shape >= 1:
            return tau  # its limit far out; the law is log-concave
        # at the kink, with a margin beyond the error of scipy's Bessel function
        return (1 + 1e-9) * (self._log_prob(np.zeros_like(tau)) - self._log_prob(tau)) + 1e-12

    def _score(self, x: Array) -> Array:
        nu = self._order
        y = np.maximum(np.abs(x), 1e-300)
        with np.errstate(invalid="ignore"):
            ratio = special.kve(nu - 1, y) / special.kve(nu, y)
        return np.asarray(np.sign(x) * np.where(np.isfinite(ratio), ratio, y / (2 * max(nu - 1, 0.5))))

    def _support_end(self) -> float:
        return 690.0

    def _loss_mode(self, tau: float) -> float:  # noqa: ARG002 - the kink is where it is
        return math.inf if self.shape >= 1 else 0.0

    def _std(self) -> float:
        return math.sqrt(2 * self.shape)

    def _mean_abs(self) -> float:
        return 2 * math.exp(math.lgamma(self.shape + 0.5) - math.lgamma(self.shape)) / math.sqrt(math.pi)

    def _fisher(self) -> float:
        return super()._fisher() if self.shape > 0.75 else math.inf
