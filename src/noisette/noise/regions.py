"""Where a likelihood ratio exceeds e^eps, for the two shapes that several laws share."""

from __future__ import annotations

import numpy as np

from noisette.noise.base import Array


def quadratic(eps: Array, tau: float, df: float) -> tuple[Array, Array]:
    """{x: ((df + x^2) / (df + (x - tau)^2))^((df+1)/2) > e^eps}, an interval or empty: Student-t and Cauchy.

    With c = e^(2 eps/(df+1)) and y = x - tau/2 the ends are the roots of
    (c-1) y^2 - (c+1) tau y + (c-1)(df + tau^2/4), written so that c itself never overflows.
    """
    t = np.tanh(eps / (df + 1))  # (c - 1) / (c + 1)
    constant = df + tau * tau / 4
    root = tau * tau / 4 - t * t * constant
    inside = root > 0
    half = tau / 2 + np.sqrt(np.where(inside, root, 0.0))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        lo, hi = tau / 2 + t * constant / half, tau / 2 + half / t
    return np.where(inside, lo, np.inf), np.where(inside, hi, np.inf)


def hyperbolic(eps: Array, shift: float) -> Array:
    """The a with cosh(a) / cosh(a - shift) = e^eps, or infinity where eps >= shift: sech and logistic.

    It solves e^(2a) = (e^(eps+shift) - 1) / (1 - e^(eps-shift)).
    """
    crosses = eps < shift
    gap = np.where(crosses, shift - eps, 1.0)
    total = np.where(crosses, shift + eps, 1.0)
    return np.where(crosses, (total + np.log(-np.expm1(-total)) - np.log(-np.expm1(-gap))) / 2, np.inf)
