"""The paper's denoiser: the Kolmogorov-Smirnov distance to the noise law, times the vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from noisette.denoisers.distance import DistanceShrinkage
from noisette.noise import Noise
from noisette.noise.base import Array

__all__ = ["KS", "largest_gap"]


@dataclass(frozen=True)
class KS(DistanceShrinkage):
    """Kolmogorov-Smirnov: the largest gap between the two distribution functions, exactly; between 0 and 1.

    >>> KS(multiplier=3.0, cap=0.5)
    KS(multiplier=3.0, cap=0.5, threshold=0.0)
    """

    def _distance(self, ascending: Array, noise: Noise) -> float:
        return largest_gap(ascending, noise.cdf)


def largest_gap(ascending: Array, cdf: Callable[[Array], Array]) -> float:
    """The Kolmogorov-Smirnov distance between the empirical law of `ascending` (n,) and a law, exactly.

    The law is evaluated at every k-th value first, then only where the maximum may be. Between order statistics lo and
    hi (counted from 0) the law only rises and so does the empirical function, so no value between them is off by more
    than max(hi/n - F(x_lo), F(x_hi) - (lo + 1)/n). Gaps whose ceiling beats the best found so far are halved until none
    is left.

    >>> largest_gap(np.array([0.25, 0.5]), lambda x: x)
    0.5
    """
    n = len(ascending)
    knots = np.arange(0, n, 1 + math.isqrt(n) // 2)
    if knots[-1] != n - 1:
        knots = np.append(knots, n - 1)
    law = cdf(ascending[knots])
    best = _largest(knots, law, n)
    lo, hi, law_lo, law_hi = knots[:-1], knots[1:], law[:-1], law[1:]
    while True:
        promising = (np.maximum(hi / n - law_lo, law_hi - (lo + 1) / n) > best) & (hi - lo > 1)
        if not promising.any():
            return best
        lo, hi, law_lo, law_hi = lo[promising], hi[promising], law_lo[promising], law_hi[promising]
        middle = (lo + hi) // 2
        law = cdf(ascending[middle])
        best = max(best, _largest(middle, law, n))
        lo, hi = np.concatenate([lo, middle]), np.concatenate([middle, hi])
        law_lo, law_hi = np.concatenate([law_lo, law]), np.concatenate([law, law_hi])


def _largest(index: np.ndarray, law: Array, n: int) -> float:
    """The largest gap at these order statistics, just before each and at it."""
    return float(np.maximum((index + 1) / n - law, law - index / n).max())
