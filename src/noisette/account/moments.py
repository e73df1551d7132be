"""Moments of the likelihood ratio of one coordinate: E_k(tau) = integral of z(x - tau)^k z(x)^(1-k) dx, from above."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from noisette.account.lattice import Array
from noisette.noise import Noise

__all__ = ["log_moments"]

_GAUSS = np.polynomial.legendre.leggauss(12)
_WIDEST = math.asinh(1e7)
_TRUSTED = 1e-6  # relative error beyond which an order is given up as infinite
_ROUNDING = 1e-13


def log_moments(noise: Noise, orders: npt.ArrayLike, tau: float) -> Array:
    """Upper bounds on log E_k(tau) for each order k >= 2; infinite where the quadrature cannot be trusted.

    E_k - 1 is the integral of z (r^k - 1 - k (r - 1)) with r = z(x - tau) / z(x): nowhere negative, so nothing
    cancels. The error bound is several times the change from halving every panel.

    >>> from noisette import Gaussian
    >>> log_moments(Gaussian(scale=2.0), [2, 3], tau=2.0).round(9).tolist()
    [1.0, 3.0]
    """
    k = np.asarray(orders, dtype=np.float64)
    if tau == 0:
        return np.zeros_like(k)
    closed = noise.log_moments(k, tau)
    if closed is not None:
        return closed * (1 + _ROUNDING)
    unit, shift = noise.replace(scale=1.0), tau / noise.known_scale
    edges = _edges(shift)
    coarse = _log_excess(unit, k, shift, edges)
    fine = _log_excess(unit, k, shift, np.sort(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2])))
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(np.expm1(coarse - fine))
        # losses are differences of log densities, whose rounding a small shift magnifies
        bound = fine + np.log1p(4 * error + _ROUNDING * (1 + 0.01 / shift))
    return np.where(error < _TRUSTED, np.logaddexp(0.0, bound), np.inf)


def _edges(tau: float) -> Array:
    """Ends of panels in v, where x = tau/2 + sinh(v): even far out, ever finer toward the kinks at 0 and tau."""
    steps = np.geomspace(1e-9, 1.0, 19)
    near = np.concatenate([-steps[::-1], [0.0], steps])
    kinks = np.concatenate([near, tau + near])
    between = np.linspace(0.0, tau, 9)
    even = np.linspace(-_WIDEST, _WIDEST, 101)
    return np.unique(np.concatenate([even, np.arcsinh(kinks - tau / 2), np.arcsinh(between - tau / 2)]))


def _log_excess(noise: Noise, k: Array, tau: float, edges: Array) -> Array:
    """log(E_k - 1) by Gauss-Legendre on every panel."""
    nodes, weights = _GAUSS
    half = np.diff(edges)[:, None] / 2
    v = ((edges[1:] + edges[:-1])[:, None] / 2 + half * nodes).ravel()
    x = tau / 2 + np.sinh(v)
    log_z = noise.log_prob(x)
    seen = log_z > -690
    x, log_z = x[seen], log_z[seen]
    log_weight = (np.log(half * weights).ravel() + np.logaddexp(v, -v) - math.log(2))[seen] + log_z
    loss = noise.log_prob(x - tau) - log_z
    if np.any(np.isnan(loss)):
        return np.full_like(k, np.inf)
    matters = log_weight + k.max() * np.abs(loss) > -90
    log_weight, loss = log_weight[matters], loss[matters]
    weight, first = np.exp(log_weight), _second(loss)
    single = float(weight @ first)  # every order takes k times this off
    return np.array([_log_sum(log_weight, weight, order, loss, order * single) for order in k])


def _log_sum(log_weight: Array, weight: Array, order: float, loss: Array, less: float) -> float:
    raised = order * loss
    top = float(raised.max())
    if not math.isfinite(top):
        return math.inf
    if top < 600:
        return math.log(max(float(weight @ _second(raised)) - less, 1e-300))
    exponents = log_weight + raised  # r^k alone: the rest is below its last digit, and dropping it errs upward
    peak = float(exponents.max())
    return peak + math.log(float(np.exp(exponents - peak).sum()))


def _second(x: Array) -> Array:
    """e^x - 1 - x, accurate near zero."""
    out = np.expm1(x) - x
    near = np.abs(x) < 0.05
    y = x[near]
    out[near] = y * y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6 * (1 + y / 7 * (1 + y / 8))))))
    return out
