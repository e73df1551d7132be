"""The Renyi accountant: the paper's lemma (with its sign corrected) and theorem, and orders between the integers."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from scipy import special

from noisette.accounting._pmf import Array, log_sum
from noisette.accounting._renyi_moments import log_moments
from noisette.accounting._step_divergence import levels_and_counts
from noisette.accounting._truncation import reject_truncation
from noisette.accounting.base import Accountant
from noisette.encoders import Encoder, Image
from noisette.errors import Unaccountable
from noisette.mechanism import Mechanism, Mechanisms
from noisette.noise import Noise

__all__ = ["INTEGERS", "ORDERS", "Rdp", "epsilon_tighter", "least", "renyi"]

INTEGERS = np.arange(2, 257)
"""The orders that the lemma is for."""

_BETWEEN = np.setdiff1d(np.arange(11, 110), 10 * INTEGERS) / 10

ORDERS = np.union1d(INTEGERS, _BETWEEN)
"""The orders that are tried, ascending; any one of them gives a bound."""

_MOST_LEVELS = 64


class Rdp(Accountant):
    """Renyi divergences with the tighter conversion."""

    name = "rdp"

    def epsilon(self, mechanisms: Mechanisms, delta: float) -> float:
        return epsilon_tighter(renyi(mechanisms), delta)

    def bound_method(self, mechanisms: Mechanisms) -> str:  # noqa: ARG002
        return "per-order maximum"


def renyi(mechanisms: Mechanisms) -> Array:
    """The Renyi divergence of all `mechanisms` at each of `ORDERS`: per order each step's worst profile, then the sum.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> found = renyi((Mechanism(L2(dim=9), Gaussian(scale=2.5), rate=0.01, steps=50),))
    >>> float(found[ORDERS == 5][0].round(8))
    0.00218076
    """
    total = np.zeros(len(ORDERS))
    for mechanism in mechanisms:
        if mechanism.steps:
            total = total + mechanism.steps * _one_step(mechanism)
    if np.any(np.isnan(total)) or np.any(total < 0):
        raise Unaccountable("a Renyi divergence came out negative or undefined.", hint="please report this mechanism")
    return total


def epsilon_tighter(divergences: Array, delta: float) -> float:
    """The tighter conversion: RDP + log((order - 1) / order) - (log delta + log order) / (order - 1)."""
    return least(divergences + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1))


def least(candidates: Array) -> float:
    """The best of the epsilons that the orders give; none is below zero."""
    return max(0.0, float(candidates.min()))


def _one_step(mechanism: Mechanism) -> Array:
    """The divergence of a sampled step at each order, the worst over profiles.

    Order - 1 times it is the log of a moment, which is convex in the order: between integers, and between 1, where it
    is 0, and 2 a chord is above it. Where one coordinate carries the whole shift, a quadrature is closer.
    """
    reject_truncation(mechanism)
    encoder, noise, rate = mechanism.encoder, mechanism.noise, mechanism.rate
    known = np.append(0.0, _at_integers(_products(encoder, noise), rate))
    below = _BETWEEN.astype(np.int64)
    share = _BETWEEN - below
    between = (1 - share) * known[below - 1] + share * known[below]
    tau = _only_shift(encoder.image, noise)
    if tau is not None:
        between = np.minimum(between, _at_fractions(noise, tau, rate))
    found = np.empty(len(ORDERS))
    found[np.searchsorted(ORDERS, INTEGERS)], found[np.searchsorted(ORDERS, _BETWEEN)] = known[1:], between
    return np.asarray(found / (ORDERS - 1))


def _at_integers(products: Array, rate: float) -> Array:
    """Order - 1 times the divergence at `INTEGERS`, from the log `products` of E_k: the lemma."""
    if rate == 1:
        return np.asarray(products[:, INTEGERS - 2].max(axis=0))
    with np.errstate(divide="ignore"):
        excess = np.where(products < 30, np.log(np.expm1(np.minimum(products, 30.0))), products)
    k, order = INTEGERS[None, :], INTEGERS[:, None]
    weights = _log_binomials() + k * math.log(rate) + (order - k) * math.log1p(-rate)
    worst = np.full(len(INTEGERS), -np.inf)
    for profile in excess:
        # A - 1 = sum over k >= 2 of binomial weights times (product of E_k - 1): the first two terms vanish
        worst = np.maximum(worst, log_sum(np.where(k <= order, weights + profile, -np.inf)))
    return np.asarray(np.logaddexp(0.0, worst))


@lru_cache(maxsize=64)
def _at_fractions(noise: Noise, tau: float, rate: float) -> Array:
    return log_moments(noise, _BETWEEN, tau, rate)


def _only_shift(image: Image, noise: Noise) -> float | None:
    """How far one coordinate moves where it alone does; None where several do, or in several ways."""
    if noise.rotation_invariant:
        return image.norm
    single = len(image.profiles) == 1 and len(image.profiles[0]) == 1 and image.profiles[0].dim == 1
    return float(image.profiles[0].levels.max()) if single else None


@lru_cache(maxsize=32)
def _products(encoder: Encoder, noise: Noise) -> Array:
    """(n, orders) log of the product of E_k over coordinates, for each profile of the image, at k = 2, 3, ..."""
    image = encoder.image
    k = INTEGERS.astype(np.float64)
    if noise.rotation_invariant:
        return log_moments(noise, k, image.norm)[None]
    levels, counts, _ = levels_and_counts(image, _MOST_LEVELS)
    moments = np.stack([log_moments(noise, k, float(level)) for level in levels])
    infinite = np.isinf(moments)
    products = counts @ np.where(infinite, 0.0, moments)
    return np.where((counts > 0).astype(float) @ infinite > 0, np.inf, products)


@cache
def _log_binomials() -> Array:
    """(orders, k) logs of the binomial coefficients of each order at k = 2, 3, ...; -inf above the order."""
    n, k = INTEGERS[:, None], INTEGERS[None, :]
    with np.errstate(all="ignore"):
        logs = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(np.maximum(n - k, 0) + 1)
    return np.where(k <= n, logs, -np.inf)
