"""Lattice distributions against plain convolution and against dp_accounting's own objects."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from scipy import stats

from noisette import Noise
from noisette.accounting._pmf import Pmf, connect_dots, excess
from noisette.accounting.composition import compose, window
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT


def random_pmf(rng: np.random.Generator, *, infinity: float = 0.0, step: float = 0.01) -> Pmf:
    probs = rng.dirichlet(np.full(rng.integers(3, 30), 0.5)) * (1 - infinity)
    return Pmf(step, int(rng.integers(-15, 5)), probs, infinity)


def convolved(parts: list[Pmf], counts: np.ndarray) -> tuple[int, np.ndarray, float]:
    """Lowest index, probabilities and mass at infinity, by numpy.convolve alone."""
    lower, probs, finite = 0, np.ones(1), 1.0
    for part, count in zip(parts, counts, strict=True):
        for _ in range(count):
            lower, probs, finite = lower + part.lower, np.convolve(probs, part.probs), finite * (1 - part.infinity)
    return lower, probs, 1 - finite


@pytest.mark.parametrize("seed", range(8))
def test_compose_is_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [random_pmf(rng, infinity=rng.choice([0.0, 1e-3])) for _ in range(3)]
    counts = rng.integers(0, 6, (5, 3))
    counts[0] = (0, 0, 1)
    for row, found in zip(counts, compose(parts, counts), strict=True):
        lower, probs, infinity = convolved(parts, row)
        dense = np.zeros(len(probs))
        start = max(found.lower, lower)
        inside = found.probs[start - found.lower : lower + len(probs) - found.lower]
        dense[start - lower : start - lower + len(inside)] = inside
        np.testing.assert_allclose(dense, probs, atol=1e-14)
        assert infinity - 1e-15 <= found.infinity <= infinity + 1e-12
        assert 1 - 1e-13 <= found.probs.sum() + found.infinity <= 1 + 1e-11


@pytest.mark.parametrize("count", [1, 2, 37, 5000])
def test_compose_against_dp_accounting(count: int) -> None:
    """Epsilons of a self-composition, which dp_accounting computes by a transform of its own."""
    part = connect_dots(lambda eps: excess(lambda e: Laplace(20.0).hockey_stick(e, 1.0), eps), 1e-3, 0.05)
    found = next(compose([part], np.array([[count]]))).to_dp_accounting()
    expected = part.to_dp_accounting().self_compose(count)
    for eps in (0.0, 0.02, 0.5, 2.0):
        theirs = expected.get_delta_for_epsilon(eps)
        ours = found.get_delta_for_epsilon(eps)
        assert theirs * (1 - 1e-9) - 1e-13 <= ours <= theirs * (1 + 1e-6) + 1e-10


def test_compose_different_parts_against_dp_accounting() -> None:
    parts = [
        connect_dots(lambda eps, noise=noise: excess(lambda e: noise.hockey_stick(e, 1.0), eps), 1e-3, 2.0)
        for noise in (Laplace(4.0), StudentT(3, 5.0))
    ]
    found = next(compose(parts, np.array([[3, 11]]))).to_dp_accounting()
    expected = parts[0].to_dp_accounting().self_compose(3).compose(parts[1].to_dp_accounting().self_compose(11))
    for delta in (1e-2, 1e-5, 1e-8):
        assert found.get_epsilon_for_delta(delta) == pytest.approx(expected.get_epsilon_for_delta(delta), rel=1e-6)


def test_ten_million_factors_keep_their_digits() -> None:
    """Two coins in each part: the sum is binomial, whose tail scipy knows."""
    n, p = 10_000_000, 0.5003
    part = Pmf(1e-5, -1, np.array([(1 - p) ** 2, 2 * p * (1 - p), p**2]), 0.0)
    found = next(compose([part], np.array([[n]])))
    heads = found.lower + np.arange(len(found.probs)) + n
    for level in (1e-2, 1e-5, 1e-9):
        k = stats.binom.isf(level, 2 * n, p)
        tail = float(found.probs[heads > k].sum()) + found.infinity
        assert tail == pytest.approx(stats.binom.sf(k, 2 * n, p), rel=1e-7, abs=1e-12)
    assert found.infinity < 1e-12


def test_the_window_leaves_next_to_nothing_outside() -> None:
    rng = np.random.default_rng(5)
    parts = [random_pmf(rng), random_pmf(rng)]
    counts = np.array([[400, 30], [10, 700]])
    lower, upper, beyond = window(parts, counts, 1e-9)
    for row in counts:
        start, probs, _ = convolved(parts, row)
        index = start + np.arange(len(probs))
        assert probs[index > upper].sum() <= beyond <= 1.1e-9
        assert probs[index < lower].sum() <= 1.1e-9
    lower, upper, _ = window(parts, counts[:1], 1e-9)
    assert upper - lower < len(convolved(parts, counts[0])[1]) / 3, "and the window is a cut"


def test_far_losses_are_bounded_from_above() -> None:
    """Losses beyond 4096 lattice points are gathered in cells: the window must still hold them."""
    probs = np.zeros(200_001)
    probs[[0, 100, 150_000, 200_000]] = (0.9, 0.1 - 2e-4, 1e-4, 1e-4)
    part = Pmf(1e-3, -100, probs, 0.0)
    lower, upper, beyond = window([part], np.array([[3]]))
    assert lower == -300
    assert upper * part.step == pytest.approx(3 * 199.9)
    assert beyond == 0
    lower, upper, beyond = window([part], np.array([[3]]), 1e-7)
    assert upper * part.step < 3 * 199.9  # three far losses have a probability of 1e-12, two of 3e-8
    assert 3e-8 * (upper * part.step < 2 * 199.9 - 0.1) <= beyond <= 1e-7
    found = next(compose([part], np.array([[3]])))
    np.testing.assert_allclose(found.probs.sum(), 1.0, atol=1e-12)
    mean = 3 * float(part.losses @ part.probs)
    assert mean * (1 + 1e-12) <= float(found.losses @ found.probs) <= mean + 1e-8, "errors are put far up"


def test_rows_that_float_cannot_hold_are_infinite() -> None:
    part = Pmf(1.0, 500, np.array([0.5, 0.5]), 0.0)
    found = list(compose([part], np.array([[3]])))
    assert [pmf.infinity for pmf in found] == [1.0]
    assert found[0].probs.sum() == 0


def test_a_part_all_at_infinity() -> None:
    lost = Pmf(0.1, -1, np.zeros(3), 1.0)
    kept = Pmf(0.1, -1, np.array([0.3, 0.4, 0.3]), 0.0)
    both, one = compose([lost, kept], np.array([[1, 2], [0, 2]]))
    assert both.infinity == pytest.approx(1.0)
    assert one.infinity < 1e-12
    assert one.probs.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), Cauchy(0.5), StudentT(3, 2.0)], ids=repr)
@pytest.mark.parametrize(("step", "reach"), [(0.1, 3.0), (0.01, 5.0), (1e-3, 1.0)])
def test_connect_dots_against_dp_accounting(noise: Noise, step: float, reach: float) -> None:
    found = connect_dots(lambda eps: excess(lambda e: noise.hockey_stick(e, 1.0), eps), step, reach)
    top = math.ceil(reach / step)
    deltas = noise.hockey_stick(step * np.arange(-top, top + 1), 1.0)
    expected = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -top, top, deltas).to_dense_pmf()
    assert found.lower == expected._lower_loss
    np.testing.assert_allclose(found.probs, expected._probs, atol=1e-12)
    assert found.infinity == pytest.approx(expected._infinity_mass, rel=1e-12)
    assert found.probs.sum() + found.infinity == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), Cauchy(0.5)], ids=repr)
def test_connected_dots_are_never_below_the_curve(noise: Noise) -> None:
    coarse = connect_dots(lambda eps: excess(lambda e: noise.hockey_stick(e, 1.0), eps), 0.3, 6.0)
    dense = coarse.to_dp_accounting()
    eps = np.linspace(0, 8, 400)
    truth = noise.hockey_stick(eps, 1.0)
    assert np.all(dense.get_delta_for_epsilon(eps) >= truth * (1 - 1e-9) - 1e-14)
    at_dots = 0.3 * np.arange(20)
    np.testing.assert_allclose(
        dense.get_delta_for_epsilon(at_dots), noise.hockey_stick(at_dots, 1.0), rtol=1e-9, atol=1e-13
    )


@pytest.mark.parametrize("infinity", [0.0, 1e-9, 0.01])
@pytest.mark.parametrize("lower", [-30, -20, -19, -7, 0, 1, 4])
def test_epsilons_and_deltas_are_those_of_dp_accounting(lower: int, infinity: float) -> None:
    rng = np.random.default_rng(9)
    for concentration in (1.0, 0.05):  # many losses have next to no mass then
        pmf = Pmf(0.05, lower, rng.dirichlet(np.full(20, concentration)) * (1 - infinity), infinity)
        theirs = pmf.to_dp_accounting()
        deltas = pmf.deltas()
        expected = theirs.get_delta_for_epsilon(0.05 * np.arange(len(deltas)))
        np.testing.assert_allclose(deltas, expected, atol=1e-13)
        between = np.array([0.0, 0.003, 0.1, 0.317, 0.999, 40.0, 500.0])
        np.testing.assert_allclose(pmf.delta(between), theirs.get_delta_for_epsilon(between), atol=1e-13)
        assert pmf.delta(np.array(1e4)) == infinity
        for delta in (0.0, 1e-12, 1e-9, 1e-4, 0.01, 0.3, 0.9, 1.0):
            assert pmf.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-9, abs=1e-13)


def test_no_smaller_epsilon_has_that_delta() -> None:
    pmf = Pmf(0.01, -200, np.random.default_rng(2).dirichlet(np.ones(900)), 1e-8)
    for delta in np.geomspace(2e-8, 0.5, 30):
        found = pmf.epsilon(float(delta))
        assert pmf.delta(np.array(found)) <= delta * (1 + 1e-9) < pmf.delta(np.array(found * (1 - 1e-6)))


def test_a_delta_that_is_nearly_that_of_epsilon_0() -> None:
    """Rounding may put the crossing below 0, in no piece at all."""
    for seed in range(200):
        pmf = Pmf(0.1, -5, np.random.default_rng(seed).dirichlet(np.ones(12)), 0.0)
        delta = float(pmf.delta(np.array(0.0)))
        for near in (np.nextafter(delta, 0), delta, np.nextafter(delta, 1)):
            assert pmf.epsilon(float(near)) == pytest.approx(0.0, abs=1e-14)


def test_losses_beyond_the_range_of_a_float() -> None:
    """Their e^-loss is 0, so that no epsilon below them will do."""
    pmf = Pmf(100.0, 0, np.array([0.5, 0, 0, 0, 0, 0, 0, 0, 0.25, 0.25]), 0.0)
    assert [pmf.epsilon(delta) for delta in (0.0, 0.1, 0.3)] == [900.0, 900.0, 800.0]
    assert pmf.epsilon(0.3) == pmf.to_dp_accounting().get_epsilon_for_delta(0.3)


def test_excess_is_the_curve_less_that_of_equal_laws() -> None:
    noise, eps = StudentT(3, 1.0), np.linspace(-4, 4, 81)
    found = excess(lambda e: noise.hockey_stick(e, 1.0), eps)
    np.testing.assert_allclose(found, noise.hockey_stick(eps, 1.0) - np.maximum(-np.expm1(eps), 0), atol=1e-14)


@pytest.mark.parametrize(("steps", "step"), [(100, 1e-3), (300, 1e-3), (37, 1e-4)])
def test_the_upper_tail_is_as_accurate_as_it_is_unlikely(steps: int, step: float) -> None:
    """Two atoms far apart on a fine lattice: by a plain transform errors alone come to more than 1e-10."""
    top = round(1 / step)
    share = 1 / (1 + math.exp(-1.0))
    probs = np.zeros(2 * top + 1)
    probs[0], probs[-1] = 1 - share, share
    found = next(compose([Pmf(step, -top, probs, 0.0)], np.array([[steps]])))
    with mp.workdps(50):
        p, tail, lost = mp.mpf(share), mp.mpf(0), mp.mpf(0)
        for k in range(steps, steps // 2, -1):  # k losses of 1, the others -1
            mass = mp.binomial(steps, k) * p**k * (1 - p) ** (steps - k)
            tail, lost = tail + mass, lost + mass * mp.exp(-(2 * k - steps))
            eps = 2 * k - steps - 1
            exact, claimed = tail - mp.exp(eps) * lost, float(found.delta(np.array(eps)))
            assert exact <= claimed, eps
            assert claimed <= exact * 1.01 + 2e-14, eps
    assert found.infinity < 2e-14
