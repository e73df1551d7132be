"""The Cramer-von Mises distance to the noise law, times the vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette.denoisers.distance import DistanceShrinkage
from noisette.noise import Noise
from noisette.noise.base import Array


@dataclass(frozen=True)
class CramerVonMises(DistanceShrinkage):
    """Root mean square gap between the two distribution functions, under the noise law; between 0 and 1/sqrt(3).

    The usual test statistic is n times its square, which averages 1/6 on pure noise.

    >>> CramerVonMises()
    CramerVonMises(multiplier=1.0, cap=None, threshold=0.0)
    """

    def _distance(self, ascending: Array, noise: Noise) -> float:
        n = len(ascending)
        gaps = (np.arange(n) + 0.5) / n - noise.cdf(ascending)
        return math.sqrt(float(np.mean(gaps * gaps)) + 1 / (12 * n * n))
