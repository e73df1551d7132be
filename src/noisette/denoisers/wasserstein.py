"""The Wasserstein distance to the noise law, times the vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from noisette.denoisers._moments import moment
from noisette.denoisers.distance import DistanceShrinkage
from noisette.errors import InvalidInput
from noisette.noise import Noise
from noisette.noise.base import Array

_NODES = np.concatenate(
    [[0.0], np.geomspace(1e-6, 0.01, 100), np.linspace(0.01, 8, 800)[1:], np.geomspace(8, 1e15, 1200)[1:]]
)


@dataclass(frozen=True)
class Wasserstein(DistanceShrinkage):
    """Area between the two distribution functions over the mean absolute value of the noise.

    It is 1 for a vector of zeros, and grows without limit with the vector. A law without a mean has no such distance.

    >>> Wasserstein()
    Wasserstein(multiplier=1.0, cap=None, threshold=0.0)
    """

    def _validate(self, noise: Noise, dim: int) -> None:  # noqa: ARG002 - any dimension will do
        if math.isinf(moment(noise, "mean_abs")):
            raise InvalidInput(
                f"the Wasserstein distance to {noise!r} is infinite, because the law has no mean.",
                hint="use KS(), CramerVonMises() or AndersonDarling()",
            )

    def _distance(self, ascending: Array, noise: Noise) -> float:
        """Between neighbouring values the empirical function is a constant c.

        With A an antiderivative of the cdf, h(x) = c x - A(x) rises up to the quantile of c and falls beyond, so the
        area between a and b is 2 h(q) - h(a) - h(b), where q is the quantile of c brought into [a, b].
        """
        n = len(ascending)
        standard = noise.replace(scale=1.0)
        x = ascending / noise.known_scale
        tail = _integrated_tail(standard)
        area = np.maximum(x, 0.0) + tail(np.abs(x))  # A: the integral of the cdf from minus infinity
        law = standard.cdf(x)
        level = np.arange(1, n) / n
        a, b = x[:-1], x[1:]
        h_a, h_b = level * a - area[:-1], level * b - area[1:]
        total = float(np.sum(np.abs(h_b - h_a)))
        crossed = (law[:-1] < level) & (level < law[1:])
        if crossed.any():
            c = level[crossed]
            q = np.sign(c - 0.5) * standard.magnitude(1 - np.abs(2 * c - 1))
            summit = c * q - np.maximum(q, 0.0) - tail(np.abs(q))
            total += 2 * float(np.sum(np.maximum(summit - np.maximum(h_a, h_b)[crossed], 0.0)))
        ends = float(area[0] + area[-1] - x[-1])
        return (total + ends) / moment(standard, "mean_abs")


@lru_cache(maxsize=16)
def _integrated_tail(standard: Noise) -> Callable[[Array], Array]:
    """The integral of P(X >= t) over t >= x as a function of x >= 0: a cubic table, for few laws have a closed form."""
    from scipy import interpolate  # noqa: PLC0415 - takes long to import, and is needed here alone

    roots, weights = special.roots_legendre(5)
    left, width = _NODES[:-1, None], np.diff(_NODES)[:, None]
    pieces = (width / 2 * standard.sf(left + width / 2 * (1 + roots))) @ weights
    values = moment(standard, "mean_abs") / 2 - np.concatenate([[0.0], np.cumsum(pieces)])
    table = interpolate.CubicHermiteSpline(_NODES, values, -standard.sf(_NODES))
    return lambda x: np.asarray(table(np.minimum(x, _NODES[-1])))
