"""How many guesses about coins can be right if a claim holds: the mathematics of an audit in one run.

m canaries enter a run by independent fair coins, and an attacker who sees everything guesses r of the coins. Under
(epsilon, delta) each guess is right with odds of at most e^epsilon, but for a correction by delta (Steinke, Nasr and
Jagielski, 2023). Under a trade-off curve the chances of c right guesses constrain each other from one c to the next
(Mahloujifar, Melis and Chaudhuri, 2025), which is tighter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special, stats

__all__ = ["epsilon_lower", "epsilon_of_gaussian", "gaussian_curve", "gaussian_lower", "p_value", "too_many"]

Array = npt.NDArray[np.float64]
Curve = Callable[[float], float]
"""Of a symmetric trade-off: the least false-negative rate at a false-positive rate."""

_LARGEST = 40.0
_BISECTIONS = 50


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """A bound on the chance of at least `right` right `guesses` under (epsilon, delta)-differential privacy.

    >>> round(p_value(canaries=10, guesses=10, right=10, epsilon=0.0, delta=0.0), 6)
    0.000977
    """
    if right == 0:
        return 1.0
    chance = float(special.expit(epsilon))
    tail = float(stats.binom.sf(right - 1, guesses, chance))
    # P(right - i <= B < right) / i, at its largest over i: what a mass of delta can add, at best
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    worst = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * worst)


def epsilon_lower(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The largest epsilon that `right` right `guesses` refute at `level`, for this delta; 0 where they refute none."""
    return _largest(lambda epsilon: p_value(canaries, guesses, right, epsilon, delta) <= level)


def too_many(curve: Curve, canaries: int, guesses: int, right: int, level: float) -> bool:
    """Whether `right` right `guesses` have a chance below `level` under a symmetric trade-off `curve`.

    With p_i the chance of i right guesses, let r_j be the sum over i >= j of p_i i/m, the chance that a random canary
    is guessed rightly and j are right in all, and h_j the same with (guesses - i)/m, guessed wrongly. Turning over one
    coin makes a right guess wrong: so 1 - r_j is at least the curve at h_(j-1). If p_right were `level`, the masses
    that this forces on all smaller counts would have to fit into a total of 1.
    """
    r, h = level * right / canaries, level * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        least = max(h, curve(1 - r))
        r += i / (guesses - i) * (least - h)
        h = least
        if r + h > guesses / canaries:
            return True
    return False


def gaussian_curve(mu: float) -> Curve:
    """The trade-off of a Gaussian with sensitivity mu times its standard deviation."""

    def curve(false_positive: float) -> float:
        return float(special.ndtr(-special.ndtri(false_positive) - mu))

    return curve


def gaussian_lower(canaries: int, guesses: int, right: int, level: float) -> float:
    """The largest mu whose Gaussian trade-off `right` right `guesses` refute at `level`."""
    return _largest(lambda mu: too_many(gaussian_curve(mu), canaries, guesses, right, level))


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """The epsilon at `delta` of a Gaussian trade-off.

    >>> round(epsilon_of_gaussian(1.0, 1e-5), 3)
    4.377
    """
    if mu == 0:
        return 0.0

    def above(epsilon: float) -> bool:
        inner, outer = special.ndtr(mu / 2 - epsilon / mu), special.log_ndtr(-mu / 2 - epsilon / mu)
        return bool(inner - math.exp(epsilon + outer) > delta)

    return _largest(above, top=max(_LARGEST, mu * mu + 40 * mu))


def _largest(holds: Callable[[float], bool], top: float = _LARGEST) -> float:
    """The largest value in [0, top] up to which `holds`, from below."""
    if not holds(0.0):
        return 0.0
    low, high = 0.0, top
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
