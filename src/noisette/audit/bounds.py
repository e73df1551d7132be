"""What a sample proves at a stated level: bounds on error rates, and whether draws follow a law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

__all__ = ["Array", "ks_p_value", "upper_bound"]

Array = npt.NDArray[np.float64]

_STRIDE = 100


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
    return float(stats.kstwo.sf(_ks_distance(np.sort(draws), cdf), len(draws)))


def _ks_distance(x: Array, cdf: Callable[[Array], Array]) -> float:
    """The exact distance of sorted draws from a law, with few calls of its distribution function.

    Both functions only rise, so their values at every hundredth draw bound the distance in between; the law is looked
    at closely only where the largest distance may be.
    """
    n = len(x)
    knots = np.unique(np.append(np.arange(0, n, _STRIDE), n - 1))
    at = cdf(x[knots])
    best = float(np.max(np.maximum((knots + 1) / n - at, at - knots / n)))
    ceiling = np.maximum(knots[1:] / n - at[:-1], at[1:] - (knots[:-1] + 1) / n)
    for gap in np.argsort(-ceiling):
        if ceiling[gap] <= best:
            break
        inner = np.arange(knots[gap] + 1, knots[gap + 1])
        if len(inner):
            values = cdf(x[inner])
            best = max(best, float(np.max(np.maximum((inner + 1) / n - values, values - inner / n))))
    return best
