"""The Renyi accountant: the paper's lemma (with its sign corrected) and theorem, at integer orders."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from scipy import special

from noisette.account.base import Accountant
from noisette.account.curve import levels_and_counts
from noisette.account.cut import refuse_cut
from noisette.account.lattice import Array, log_sum
from noisette.account.moments import log_moments
from noisette.encode import Encoder
from noisette.errors import Unaccountable
from noisette.mechanism import Mechanism, Mechanisms
from noisette.noise import Noise

__all__ = ["ORDERS", "Rdp", "epsilon_tighter", "least", "renyi"]

ORDERS = np.arange(2, 257)
"""The orders that are tried; any one of them gives a bound."""

_MOST_LEVELS = 64


class Rdp(Accountant):
    """Renyi divergences with the tighter conversion."""

    name = "rdp"

    def epsilon(self, mechanisms: Mechanisms, delta: float) -> float:
        return epsilon_tighter(renyi(mechanisms), delta)

    def basis(self, mechanisms: Mechanisms) -> str:  # noqa: ARG002
        return "per-order maximum"


def renyi(mechanisms: Mechanisms) -> Array:
    """The Renyi divergence of all `mechanisms` at each of `ORDERS`: per order each step's worst profile, then the sum.

    >>> from noisette import L2, Gaussian
    >>> float(renyi((Mechanism(L2(dim=9), Gaussian(scale=2.5), rate=0.01, steps=50),))[3].round(8))
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
    """The divergence of a sampled step at each order, the worst over profiles."""
    refuse_cut(mechanism)
    products = _products(mechanism.encoder, mechanism.noise)
    q = mechanism.rate
    if q == 1:
        return np.asarray(products[:, ORDERS - 2].max(axis=0) / (ORDERS - 1))
    with np.errstate(divide="ignore"):
        excess = np.where(products < 30, np.log(np.expm1(np.minimum(products, 30.0))), products)
    k, order = ORDERS[None, :], ORDERS[:, None]
    weights = _log_binomials() + k * math.log(q) + (order - k) * math.log1p(-q)
    worst = np.full(len(ORDERS), -np.inf)
    for profile in excess:
        # A - 1 = sum over k >= 2 of binomial weights times (product of E_k - 1): the first two terms vanish
        worst = np.maximum(worst, log_sum(np.where(k <= order, weights + profile, -np.inf)))
    return np.asarray(np.logaddexp(0.0, worst) / (ORDERS - 1))


@lru_cache(maxsize=32)
def _products(encoder: Encoder, noise: Noise) -> Array:
    """(n, orders) log of the product of E_k over coordinates, for each profile of the image, at k = 2, 3, ..."""
    image = encoder.image
    k = ORDERS.astype(np.float64)
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
    n, k = ORDERS[:, None], ORDERS[None, :]
    with np.errstate(all="ignore"):
        logs = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(np.maximum(n - k, 0) + 1)
    return np.where(k <= n, logs, -np.inf)
