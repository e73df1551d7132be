"""What must hold for every noise law, with references that know nothing of it but its log density."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, optimize

from noisette import Generator, Noise, parse
from noisette.errors import InvalidInput
from tests.support.helpers import refused


def check_text(noise: Noise) -> None:
    """The text form parses back to an equal value; the value is hashable and cannot be changed."""
    again = parse(repr(noise), Noise)
    assert again == noise
    assert hash(again) == hash(noise)
    assert repr(again) == repr(noise)
    with pytest.raises(AttributeError):
        noise.scale = 2.0  # type: ignore[misc]
    assert noise.replace(scale=noise.known_scale * 2) != noise
    open_noise = noise.replace(scale=None)
    assert parse(repr(open_noise), Noise) == open_noise
    with refused(InvalidInput, "no scale"):
        open_noise.sample((1,), Generator(0))
    for bad in (0.0, -1.0, math.nan, math.inf, "1", True):
        with refused(InvalidInput, "scale"):
            noise.replace(scale=bad)


def check_distribution(noise: Noise) -> None:
    """Density, distribution function and magnitude are one symmetric, unimodal law."""
    x = quantiles(noise)
    density = np.exp(noise.log_prob(x))
    assert np.all(np.diff(density) <= 0)
    assert np.array_equal(noise.log_prob(-x), noise.log_prob(x))
    assert np.array_equal(noise.cdf(-x), noise.sf(x))
    assert np.all(np.diff(noise.sf(x)) <= 0)
    assert noise.sf(0.0) == noise.cdf(0.0) == 0.5
    assert noise.sf(np.inf) == 0
    assert noise.cdf(np.inf) == 1
    assert noise.sf(x.reshape(2, -1)).shape == (2, x.size // 2)
    # the density is minus the slope of sf: integrate it between neighbouring quantiles
    for a, b in pairwise(x[::4]):
        mass, _ = integrate.quad(lambda t: math.exp(noise.log_prob(t)), a, b, epsabs=0, epsrel=1e-11)
        assert mass == pytest.approx(float(noise.sf(a) - noise.sf(b)), rel=1e-7, abs=1e-14)
    u = np.array([1.0, 0.9, 0.5, 1e-2, 1e-5, 1e-9, 1e-15])
    assert noise.magnitude(u)[0] == pytest.approx(0, abs=1e-12 * noise.known_scale)
    np.testing.assert_allclose(2 * noise.sf(noise.magnitude(u)), u, rtol=1e-7)


def check_moments(noise: Noise) -> None:
    """Standard deviation, mean absolute value and Fisher information against quadrature; score against a slope."""
    s = noise.known_scale
    x = np.array([0.1, 0.7, 1.3, 4.0, 11.0]) * s
    step = 1e-5 * x
    slope = (noise.log_prob(x + step) - noise.log_prob(x - step)) / (2 * step)
    np.testing.assert_allclose(noise.score(x), -slope, rtol=1e-5, atol=1e-7 / s)
    np.testing.assert_allclose(noise.score(-x), -noise.score(x), rtol=1e-12)
    assert noise.score(0.0) == pytest.approx(0, abs=1e-9)
    if math.isfinite(noise.std):
        assert noise.std == pytest.approx(math.sqrt(expectation(noise, lambda t: t * t)), rel=1e-5)
    else:
        assert expectation(noise, lambda t: t * t) > 1e3 * s * s
    if math.isfinite(noise.mean_abs):
        assert noise.mean_abs == pytest.approx(expectation(noise, lambda t: t), rel=1e-5)
    else:
        assert expectation(noise, lambda t: t) > 10 * s
    if math.isfinite(noise.fisher_information):
        measured = expectation(noise, lambda t: noise.score(t) ** 2)
        assert noise.fisher_information == pytest.approx(measured, rel=1e-4)


def check_hockey_stick(noise: Noise) -> None:
    """The curve against an integral of the positive part; its limits; monotone in tau and in eps."""
    s = noise.known_scale
    eps = np.array([-3.0, -0.4, 0.0, 0.05, 0.7, 3.0])
    for tau in (0.01 * s, 0.4 * s, 1.0 * s, 3.0 * s):
        h = noise.hockey_stick(eps, tau)
        truth = np.array([positive_part(noise, e, tau) for e in eps])
        np.testing.assert_allclose(h, truth, rtol=1e-7, atol=1e-10)
        np.testing.assert_array_equal(noise.hockey_stick(eps, -tau), h)
        assert noise.hockey_stick(0.7, tau) == pytest.approx(h[4], rel=1e-10)
        assert noise.hockey_stick(eps.reshape(2, 3), tau).shape == (2, 3)
    grid = np.linspace(-4, 6, 41)
    curves = np.array([noise.hockey_stick(grid, tau) for tau in np.geomspace(1e-4 * s, 40 * s, 25)])
    slack = 4 * noise.survival_rel_error * 50  # the safety margin itself is not monotone
    assert np.all(np.diff(curves, axis=0) >= -slack), "monotone in tau: the one-dimensional case of dominance"
    assert np.all(np.diff(curves, axis=1) <= slack)
    assert np.all((curves >= 0) & (curves <= 1))
    assert np.all(curves >= np.maximum(0, -np.expm1(grid)) - 1e-15)
    assert np.array_equal(noise.hockey_stick(grid, 0.0), np.maximum(0, -np.expm1(grid)))
    assert noise.hockey_stick(-np.inf, s) == 1
    assert noise.hockey_stick(np.inf, s) == 0
    for bad in (math.nan, math.inf, "1"):
        with refused(InvalidInput, "tau"):
            noise.hockey_stick(0.0, bad)


def check_log_moments(noise: Noise) -> None:
    """Where a law has closed moments of the likelihood ratio, they are those of its density."""
    s = noise.known_scale
    t = np.linspace(-30, 30, 20_001)
    x, w = s * np.sinh(t), s * np.cosh(t) * (t[1] - t[0])
    orders = np.array([2.0, 3.0, 6.0])
    for tau in (0.5 * s, 2.0 * s):
        closed = noise.log_moments(orders, tau)
        if closed is None:
            return
        exponents = np.outer(orders, noise.log_prob(x - tau)) + np.outer(1 - orders, noise.log_prob(x)) + np.log(w)
        # the trapezoid rule rounds off a cusp, hence the tolerance
        np.testing.assert_allclose(closed, np.log(np.sum(np.exp(exponents), axis=1)), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(noise.log_moments(orders, -tau), closed)


def check_sample(noise: Noise) -> None:
    """Any shape, float64, the declared scale, from the library's generator alone."""
    for shape in ((), (0,), (7,), (3, 4), (2, 1, 5)):
        drawn = noise.sample(shape, Generator(5))
        assert drawn.shape == shape
        assert drawn.dtype == torch.float64
        assert drawn.device.type == "cpu"
        assert torch.isfinite(drawn).all()
    one, two = noise.sample((100,), Generator(5)), noise.sample((100,), Generator(5))
    assert torch.equal(one, two)
    assert not torch.equal(one, noise.sample((100,), Generator(6)))
    wide = noise.replace(scale=2 * noise.known_scale).sample((100,), Generator(5))
    torch.testing.assert_close(wide, 2 * one, rtol=1e-14, atol=0)


NOISE_CHECKS: tuple[Callable[[Noise], None], ...] = (
    check_text,
    check_distribution,
    check_moments,
    check_hockey_stick,
    check_log_moments,
    check_sample,
)


def quantiles(noise: Noise) -> np.ndarray:
    """Points x >= 0 from the middle of the law to its far tail, ascending, an even number of them."""
    u = np.concatenate([np.linspace(1, 0.05, 20), np.geomspace(0.04, 1e-12, 20)])
    return np.maximum(noise.magnitude(u), 0.0)


def expectation(noise: Noise, f: Callable[[np.ndarray], np.ndarray]) -> float:
    """E f(|X|): the trapezoid rule in log |x|, where a smooth density decays at both ends, so that it is exact."""
    log_x = np.arange(-200, 60, 0.02)
    x = noise.known_scale * np.exp(log_x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        terms = f(x) * np.exp(noise.log_prob(x) + log_x)
    return 2 * 0.02 * noise.known_scale * float(np.sum(terms[np.isfinite(terms)]))


def positive_part(noise: Noise, eps: float, tau: float) -> float:
    """The integral of max(z(x - tau) - e^eps z(x), 0): the crossings by search, the masses between by quadrature."""

    def loss(x: float) -> float:
        return float(noise.log_prob(x - tau) - noise.log_prob(x)) - eps

    offsets = np.concatenate([[0.0], noise.known_scale * np.geomspace(1e-6, 500, 400)])
    grid = np.unique(np.concatenate([middle + sign * offsets for middle in (0, tau / 2, tau) for sign in (-1, 1)]))
    above = noise.log_prob(grid - tau) - noise.log_prob(grid) > eps
    turns = np.flatnonzero(above[1:] != above[:-1])
    edges = [optimize.brentq(loss, grid[i], grid[i + 1], xtol=1e-15, rtol=1e-14) for i in turns]
    edges = [-math.inf, *edges, math.inf]
    first = 0 if above[0] else 1
    total = 0.0
    for lo, hi in list(pairwise(edges))[first::2]:
        total += _mass(noise, lo - tau, hi - tau) - math.exp(eps) * _mass(noise, lo, hi)
    return total


def _mass(noise: Noise, lo: float, hi: float) -> float:
    return _tail(noise, lo) - _tail(noise, hi)


def _tail(noise: Noise, x: float) -> float:
    """P(X >= x) by a composite Gauss rule on the density, in log x."""
    if x <= 0:
        return 0.5 if x == 0 else 1 - _tail(noise, -x)
    if x == math.inf:
        return 0.0
    nodes, weights = np.polynomial.legendre.leggauss(10)
    cuts = np.arange(math.log(max(x / noise.known_scale, 1e-20)), 60, 0.2)
    t = (cuts[:, None] + 0.1 + 0.1 * nodes).ravel()
    points = noise.known_scale * np.exp(t)
    density = np.exp(noise.log_prob(points)) * points
    return float(0.1 * np.tile(weights, len(cuts)) @ density)
