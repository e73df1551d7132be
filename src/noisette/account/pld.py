"""The privacy-loss accountant: tight, for any noise and any image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from noisette.account.curve import Curve, step_curve
from noisette.account.lattice import LARGEST_LOSS, Array, Pmf, compose, connect_dots
from noisette.mechanism import Mechanism, Run

__all__ = ["privacy_loss"]

PrivacyLoss = privacy_loss_distribution.PrivacyLossDistribution

_FINENESS = 40.0
_LEAST_POINTS = 4000
_MOST_POINTS = 2**21


@lru_cache(maxsize=64)
def privacy_loss(run: Run) -> PrivacyLoss:
    """The privacy-loss distribution of a whole run, both directions, as an object of dp_accounting.

    >>> from noisette import L2, Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=0.01, steps=100)
    >>> round(privacy_loss((mechanism,)).get_epsilon_for_delta(1e-5), 2)
    0.94
    """
    paid = [mechanism for mechanism in run if mechanism.steps > 0]
    if not paid:
        return privacy_loss_distribution.identity()
    curves = [step_curve(mechanism.encoder, mechanism.noise) for mechanism in paid]
    counts = np.array([[mechanism.steps for mechanism in paid]])
    composed = []
    for direction in (removal, addition):
        sampled = [direction(curve, mechanism.rate) for curve, mechanism in zip(curves, paid, strict=True)]
        reaches = [sampled_reach(curve.reach, mechanism.rate) for curve, mechanism in zip(curves, paid, strict=True)]
        composed.append(next(compose(_lattice(sampled, reaches, counts[0]), counts)))
    return PrivacyLoss(composed[0].to_dp_accounting(), composed[1].to_dp_accounting())


def removal(curve: Curve, rate: float) -> Callable[[Array], Array]:
    """H of (1 - q) Q + q P against Q."""

    def sampled(eps: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            inner = np.log1p(np.maximum(np.expm1(eps) / rate, -1.0))
        inside = np.isfinite(inner) & (inner < 2 * LARGEST_LOSS)
        h = rate * curve(np.where(inside, inner, 0.0))
        return np.where(inside, h, np.where(eps < 0, -np.expm1(np.minimum(eps, 0.0)), rate * curve.forward(np.array(1e9))))

    return sampled


def addition(curve: Curve, rate: float) -> Callable[[Array], Array]:
    """H of Q against (1 - q) Q + q P, with the symmetric curve's upper bound for H of Q against P."""

    def sampled(eps: Array) -> Array:
        weight = 1 - np.exp(np.minimum(eps, 1.0)) * (1 - rate)  # 1 - e^eps (1 - q): nothing is left where it is <= 0
        inside = weight > 0
        safe = np.where(inside, weight, 1.0)
        return np.where(inside, safe * curve(np.where(inside, eps + math.log(rate) - np.log(safe), 0.0)), 0.0)

    return sampled


def sampled_reach(reach: float, rate: float) -> float:
    """A loss that a sampled step reaches with next to no mass beyond, given the same of an unsampled one."""
    return float(np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + reach))


def _lattice(curves: Sequence[Callable[[Array], Array]], reaches: Sequence[float], counts: Array) -> list[Pmf]:
    """The curves on one lattice, fine enough for the whole composition."""
    top = max(reaches)
    step = top / _LEAST_POINTS
    while True:
        parts = [connect_dots(curve, step, reach) for curve, reach in zip(curves, reaches, strict=True)]
        spread = math.sqrt(sum(float(n) * part.spread**2 for n, part in zip(counts, parts, strict=True)))
        # a typical step's loss, resolved; but no lattice longer than memory allows
        wanted = max(spread / math.sqrt(float(counts.sum())) / _FINENESS, 24 * spread / _MOST_POINTS, top / _MOST_POINTS)
        if wanted >= step / 1.5:
            return parts
        step = wanted
