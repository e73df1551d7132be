"""Losses and where they exceed eps, for the two shapes that several laws share; all measured from the shift."""

from __future__ import annotations

import numpy as np
from scipy import special

from noisette.noise.base import Array


def log_quadratic_ratio(y: Array, tau: float, df: float) -> Array:
    """log((df + (y + tau)^2) / (df + y^2)), of which Student-t and Cauchy losses are multiples."""
    return np.asarray(np.log1p(tau * (2 * y + tau) / (df + y * y)))


def quadratic(eps: Array, tau: float, df: float) -> tuple[Array, Array]:
    """{y: ((df + (y + tau)^2) / (df + y^2))^((df+1)/2) > e^eps}, an interval or empty: Student-t and Cauchy.

    With c = e^(2 eps/(df+1)) the ends are the roots of (c-1) y^2 - 2 tau y + (c-1) df - tau^2, written so that c itself
    never overflows and their difference does not cancel.
    """
    t = np.tanh(eps / (df + 1))  # (c - 1) / (c + 1)
    rest = 2 * special.expit(-2 * eps / (df + 1))  # 1 - t
    root = rest * (1 + t) * tau * tau - 4 * t * t * df
    inside = root > 0
    half = rest * tau + np.sqrt(np.where(inside, root, 1.0))
    with np.errstate(divide="ignore"):
        lo, hi = (2 * t * df - rest * tau * tau) / half, half / (2 * t)
    return np.where(inside, lo, np.inf), np.where(inside, hi, np.inf)


def log_cosh_ratio(a: Array, shift: float) -> Array:
    """log(cosh(a + shift) / cosh(a)): the losses of sech and logistic."""
    right = shift + np.log1p(np.expm1(-2 * shift) * special.expit(-2 * a))  # exact for a >= 0
    return np.where(a >= 0, right, np.logaddexp(a + shift, -a - shift) - np.logaddexp(a, -a))


def hyperbolic(eps: Array, shift: float) -> Array:
    """The a with cosh(a + shift) / cosh(a) = e^eps, or infinity where eps >= shift: sech and logistic.

    It solves e^(2a) = (e^(eps+shift) - 1) / (e^(2 shift) - e^(eps+shift)).
    """
    crosses = eps < shift
    gap = np.where(crosses, shift - eps, 1.0)
    total = np.where(crosses, shift + eps, 1.0)
    return np.where(crosses, (np.log(-np.expm1(-total)) - np.log(-np.expm1(-gap)) - gap) / 2, np.inf)
