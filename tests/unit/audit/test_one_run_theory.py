"""The bounds behind the audit in one run, against scipy, a linear program, and games whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from noisette import Mechanism, guarantee, tradeoff
from noisette.audit._one_run_theory import (
    epsilon_lower,
    epsilon_of_gaussian,
    gaussian_curve,
    gaussian_lower,
    p_value,
    too_many,
)
from noisette.encoders import L2
from noisette.noise import Gaussian


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("guesses", "right"), [(10, 10), (50, 31), (200, 120), (200, 0)])
def test_without_delta_it_is_a_binomial_test(guesses: int, right: int, epsilon: float) -> None:
    chance = 1 / (1 + math.exp(-epsilon))
    expected = stats.binomtest(right, guesses, chance, alternative="greater").pvalue
    assert p_value(300, guesses, right, epsilon, 0.0) == pytest.approx(expected, rel=1e-9)


def test_delta_covers_a_mechanism_that_tells_all_now_and_then() -> None:
    """With probability delta every coin is published: at least that much must be allowed for."""
    for delta in (1e-4, 1e-2):
        assert p_value(100, 100, 100, 0.0, delta) >= delta


def test_lower_bound_by_randomised_response() -> None:
    """Each coin is told with odds e^epsilon: the bound holds in all but a share `level` of games, and is near."""
    rng = np.random.default_rng(1)
    right = rng.binomial(500, 1 / (1 + math.exp(-1.0)), 1000)
    values, counts = np.unique(right, return_counts=True)
    found = np.repeat([epsilon_lower(500, 500, int(value), 0.0, 0.05) for value in values], counts)
    above = np.mean(found > 1.0)
    assert above <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)
    assert above > 0.01, "it is tight here"
    assert np.median(found) > 0.75


def _largest_chance(lines: np.ndarray, canaries: int, guesses: int, right: int) -> float:
    """The largest chance of at least `right` right guesses under h >= a r + b for all (a, b), as a linear program."""
    counts = np.arange(guesses + 1)
    rows, bounds = [], []
    for j in range(1, guesses + 1):
        r = np.where(counts >= j, counts, 0) / canaries
        h = np.where(counts >= j - 1, guesses - counts, 0) / canaries
        for slope, offset in lines:
            rows.append(slope * r - h)
            bounds.append(-offset)
    solved = optimize.linprog(
        -(counts >= right).astype(float), A_ub=np.array(rows), b_ub=bounds, A_eq=np.ones((1, guesses + 1)), b_eq=[1.0]
    )
    assert solved.success
    return float(-solved.fun)


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize(("canaries", "guesses", "right"), [(10, 10, 8), (30, 30, 24), (40, 12, 11), (40, 12, 12)])
def test_the_recursion_is_a_linear_program(mu: float, canaries: int, guesses: int, right: int) -> None:
    """The curve by tangents: h >= f(1 - r), f convex, so that each tangent is one linear constraint."""
    x = 1 - np.concatenate([np.geomspace(1e-7, 0.5, 60), 1 - np.geomspace(0.45, 1e-4, 30)])  # = 1 - r
    z = stats.norm.ppf(x)
    value, slope = stats.norm.cdf(-z - mu), -np.exp(-mu * z - mu * mu / 2)
    lines = np.column_stack([-slope, value - slope * (x - 1)])  # f(1 - r) >= value + slope (1 - r - x)
    truth = _largest_chance(lines, canaries, guesses, right)

    def curve(false_positive: float) -> float:
        return max(0.0, float(np.max(lines[:, 0] * (1 - false_positive) + lines[:, 1])))

    assert not too_many(curve, canaries, guesses, right, truth * 0.999), "such a chance is possible"
    assert too_many(curve, canaries, guesses, right, truth * 1.02)


def test_a_gaussian_game() -> None:
    """Coins told through Gaussian noise: the bound holds, and is nearer to the truth than that by epsilon and delta."""
    rng = np.random.default_rng(2)
    m, sigma, delta = 4000, 1.0, 1e-5
    truth = epsilon_of_gaussian(1 / sigma, delta)
    tight, loose = [], []
    for _ in range(15):
        coins = rng.integers(2, size=m)
        told = coins[np.argsort(coins + sigma * rng.standard_normal(m))]
        right = int((told[:200] == 0).sum() + (told[-200:] == 1).sum())
        tight.append(epsilon_of_gaussian(gaussian_lower(m, 400, right, 0.01), delta))
        loose.append(epsilon_lower(m, 400, right, delta, 0.01))
    assert max(tight) <= truth
    assert all(t > e for t, e in zip(tight, loose, strict=True))
    assert np.median(tight) > truth / 2


@pytest.mark.parametrize(("mu", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-3)])
def test_the_epsilon_of_a_gaussian_is_the_accountants(mu: float, delta: float) -> None:
    claim = Mechanism(L2(dim=9), Gaussian(scale=1 / mu), rate=1.0, steps=1)
    assert epsilon_of_gaussian(mu, delta) == pytest.approx(guarantee(claim, delta).epsilon, rel=1e-3)
    rates = np.array([0.01, 0.3, 0.7])
    curve = gaussian_curve(mu)
    np.testing.assert_allclose([curve(x) for x in rates], tradeoff(claim).false_negative(rates), atol=2e-3)


def test_no_right_guess_proves_nothing() -> None:
    assert epsilon_lower(100, 100, 50, 1e-5, 0.05) == 0
    assert gaussian_lower(100, 100, 50, 0.05) == 0
    assert epsilon_of_gaussian(0.0, 1e-5) == 0
