"""The Renyi divergence of order 2 on the axis of the paper's L1 figure: 9,000 steps at rate 256/60000."""

from __future__ import annotations

import math

import numpy as np

from noisette.accounting._renyi_moments import log_moments
from noisette.accounting._step_divergence import levels_and_counts
from noisette.encoders import Ranked
from noisette.noise import Noise

RATE, STEPS = 256 / 60000, 9000


def divergence(noise: Noise, dim: int) -> float:
    """D2 of all steps, for a half-normal profile of norm 1 in `dim` dimensions."""
    levels, counts, _ = levels_and_counts(Ranked(dim).image)
    log_product = sum(n * log_moments(noise, [2], float(tau))[0] for tau, n in zip(levels, counts[0], strict=True))
    return STEPS * math.log1p(RATE**2 * math.expm1(log_product))


def at(d2: np.ndarray | float, of: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Errors of a line at `d2`: straight over the sigma of Gaussian noise with that D2, and so exact for that noise."""
    wanted, given = (np.log1p(np.expm1(np.asarray(x) / STEPS) / RATE**2) ** -0.5 for x in (d2, of[0]))
    return np.interp(wanted, given, of[1])


def like(factor: float) -> list[float]:
    """Scales at which a law of Fisher information factor^2 acts like Gaussian noise of 0.85 to 1.45 at large dims."""
    return [round(factor * sigma, 4) for sigma in np.arange(0.85, 1.451, 0.05)]
