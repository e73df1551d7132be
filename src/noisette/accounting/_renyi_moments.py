"""Moments of the likelihood ratio of one coordinate: E_k(tau) = integral of z(x - tau)^k z(x)^(1-k) dx, from above."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from noisette.accounting._pmf import Array
from noisette.noise import Noise

__all__ = ["log_moments"]

_GAUSS = np.polynomial.legendre.leggauss(12)
_PANEL = 0.34  # width far out, in the arsinh of the place
_TRUSTED = 1e-6  # relative error beyond which an order is given up as infinite
_ROUNDING = 1e-13
_LOST = -40.0  # log of what may be lost where a density leaves the range of a float, over the largest value


def log_moments(noise: Noise, orders: npt.ArrayLike, tau: float, rate: float | None = None) -> Array:
    """Upper bounds on log E_k(tau) for each order k >= 2; infinite where the quadrature cannot be trusted.

    E_k - 1 is the integral of z (r^k - 1 - k (r - 1)) with r = z(x - tau) / z(x): nowhere negative, so nothing
    cancels. The error bound is several times the change from halving every panel.

    With a `rate`, r is that of a step in which the coordinate is shifted so often, 1 - rate + rate z(x - tau) / z(x),
    and orders are any above 1: never a closed form.

    >>> from noisette.noise import Gaussian
    >>> log_moments(Gaussian(scale=2.0), [2, 3], tau=2.0).round(9).tolist()
    [1.0, 3.0]
    """
    k = np.asarray(orders, dtype=np.float64)
    unit, shift = noise.replace(scale=1.0), noise.domain.shift(tau, noise.known_scale)
    if shift == 0:
        return np.zeros_like(k)
    closed = unit.log_moments(k, shift) if rate is None else None
    if closed is not None:
        return closed * (1 + _ROUNDING)
    edges = _edges(shift)
    with np.errstate(all="ignore"):  # what is undefined fails the last comparison, and counts as infinite
        coarse = _log_excess(unit, k, shift, edges, rate)
        fine = _log_excess(unit, k, shift, np.sort(np.concatenate([edges, (edges[1:] + edges[:-1]) / 2])), rate)
        error = np.abs(np.expm1(coarse - fine))
        # losses may be differences of log densities, whose rounding a small shift magnifies
        bound = np.logaddexp(0.0, fine + np.log1p(4 * error + _ROUNDING * (1 + 0.01 / shift)))
        return np.where((error < _TRUSTED) & ~np.isnan(bound), bound, np.inf)


def _edges(tau: float) -> Array:
    """Ends of panels in v, where y = sinh(v), from the middle -tau/2: even far out, ever finer toward the kink at 0."""
    finest = min(1e-9, 1e-3 * tau)
    steps = np.geomspace(finest, 1.0, math.ceil(math.log(1 / finest) / 1.15))
    near = np.concatenate([-steps, [0.0], steps])
    middle, widest = -tau / 2, math.asinh(1e7 * max(tau, 1.0))
    even = np.arcsinh(middle) + _PANEL * np.arange(math.ceil((widest - math.asinh(middle)) / _PANEL) + 1)
    between = np.linspace(middle, tau / 2, 9)
    return np.unique(np.concatenate([even, np.arcsinh(near[near > middle]), np.arcsinh(between)]))


def _log_excess(noise: Noise, k: Array, tau: float, edges: Array, rate: float | None) -> Array:
    """log(E_k - 1) by Gauss-Legendre on every panel, NaN where the integrand leaves the range of a float.

    Outcomes x = y + tau right of the middle have the loss L(y); their mirror images x = -y have -L(y).
    """
    nodes, weights = _GAUSS
    half = np.diff(edges)[:, None] / 2
    v = ((edges[1:] + edges[:-1])[:, None] / 2 + half * nodes).ravel()
    y = np.sinh(v)
    log_z, loss = noise.log_prob(y), noise.loss(y, tau)
    seen = np.isfinite(log_z) & np.isfinite(loss)
    last = max(int(np.count_nonzero(seen)) - 1, 0)
    if not np.all(seen[: last + 1]):
        return np.full_like(k, np.nan)
    width = (np.log(half * weights).ravel() + np.logaddexp(v, -v) - math.log(2))[seen]
    log_z, loss = log_z[seen], loss[seen]
    log_weight = np.concatenate([width + log_z, (width + log_z - loss)[::-1]])
    loss = np.concatenate([-loss, loss[::-1]])
    if rate is not None:
        loss = _sampled(loss, rate)
    out = np.empty_like(k)
    weight = np.exp(log_weight)
    single = float(weight[loss < 600] @ _second(loss[loss < 600]))  # every order takes k times this off
    for i, order in enumerate(k.tolist()):
        out[i] = _log_sum(log_weight, weight, order, loss, order * single)
        lost = max(
            log_weight[last], log_weight[last] - order * loss[last], log_weight[last + 1] + order * loss[last + 1]
        )
        if not np.all(seen) and not lost < out[i] + _LOST:
            out[i] = np.nan
    return out


def _sampled(loss: Array, rate: float) -> Array:
    """Log of 1 + rate (e^loss - 1), accurate near zero."""
    if rate == 1:
        return loss
    near = np.log1p(rate * np.expm1(np.minimum(loss, 1.0)))
    return np.where(loss < 1, near, loss + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-loss)))


def _log_sum(log_weight: Array, weight: Array, order: float, loss: Array, less: float) -> float:
    raised = order * loss
    large = raised >= 600  # of these r^k alone: the rest is below its last digit, and dropping it errs upward
    small = float(weight[~large] @ _second(raised[~large])) - less
    return float(np.logaddexp.reduce((log_weight + raised)[large], initial=math.log(max(small, 1e-300))))


def _second(x: Array) -> Array:
    """e^x - 1 - x, accurate near zero."""
    out = np.expm1(x) - x
    near = np.abs(x) < 0.05
    y = x[near]
    out[near] = y * y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6 * (1 + y / 7 * (1 + y / 8))))))
    return out
