"""What a sample proves at a stated level: bounds on error rates, and whether draws follow a law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

from noisette.denoisers.ks import largest_gap

__all__ = ["Array", "ks_p_value", "upper_bound"]

Array = npt.NDArray[np.float64]


def upper_bound(count: int, trials: int, level: float) -> float:
    """Clopper and Pearson's upper bound on a probability that made `count` of `trials`, wrong at most at `level`.

    >>> round(upper_bound(0, 100, level=0.05), 4)
    0.0295
    """
    return 1.0 if count == trials else float(stats.beta.ppf(1 - level, count + 1, trials - count))


def ks_p_value(draws: Array, cdf: Callable[[Array], Array]) -> float:
    """The two-sided Kolmogorov-Smirnov test of `draws` (n,) against a law; a value that is not finite refutes it.

    >>> round(ks_p_value(stats.norm.ppf((np.arange(1000) + 0.5) / 1000), stats.norm.cdf), 3)
    1.0
    """
    if not np.all(np.isfinite(draws)):
        return 0.0
    return float(stats.kstwo.sf(largest_gap(np.sort(draws), cdf), len(draws)))
