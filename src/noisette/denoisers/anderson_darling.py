"""The Anderson-Darling distance to the noise law, times the vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette.denoisers.distance import DistanceShrinkage
from noisette.noise import Noise
from noisette.noise.base import Array

_LEAST = 5e-324  # the smallest float: values so far out that their tail underflows count as if it were this


@dataclass(frozen=True)
class AndersonDarling(DistanceShrinkage):
    """Like Cramer-von Mises with each gap divided by its own standard deviation, so that the tails count in full.

    The usual test statistic is n times its square, which averages 1 on pure noise.

    >>> AndersonDarling()
    AndersonDarling(multiplier=1.0, cap=None, threshold=0.0)
    """

    def _distance(self, ascending: Array, noise: Noise) -> float:
        n = len(ascending)
        tail = noise.sf(np.abs(ascending))  # one evaluation gives both logarithms to full accuracy
        outer, inner = np.log(np.maximum(tail, _LEAST)), np.log1p(-tail)
        below = ascending < 0
        log_cdf, log_sf = np.where(below, outer, inner), np.where(below, inner, outer)
        weights = (2 * np.arange(n) + 1) / n
        square = -1 - float(np.mean(weights * (log_cdf + log_sf[::-1])))
        return math.sqrt(max(square, 0.0))
