"""P8: moments from above. Closed forms, and mpmath at 50 digits for everything else."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from noisette import Noise
from noisette.accounting._renyi_moments import log_moments
from noisette.noise import (
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Logistic,
    ScipyNoise,
    Sech,
    StudentT,
    VarianceGamma,
)
from tests.support.accounting_checks import check_large_moment, check_moments

FAMILIES = (
    lambda rng, scale: StudentT(float(rng.choice([1.5, 3.0, 9.0, 30.0])), scale),
    lambda rng, scale: Logistic(scale),
    lambda rng, scale: Sech(scale),
    lambda rng, scale: GeneralizedGaussian(float(rng.choice([0.7, 1.2, 1.5, 2.0])), scale),
    lambda rng, scale: ScipyNoise("t", 4.0, scale=scale),
    lambda rng, scale: Cauchy(scale),
    lambda rng, scale: Laplace(scale),
    lambda rng, scale: Gaussian(scale),
    lambda rng, scale: VarianceGamma(float(rng.choice([1.0, 2.0])), scale),
)


def random_case(number: int) -> tuple[Noise, int, float]:
    """A law, an order and a shift, from tiny to several scales."""
    rng = np.random.default_rng([8, number])
    scale = float(10 ** rng.uniform(-1.5, 1.5))
    families = FAMILIES if number >= 50 else FAMILIES[:-1]  # Bessel functions at 50 digits take their time
    noise = families[number % len(families)](rng, scale)
    order = int(rng.choice([2, 3, 5, 9, 17, 33, 64]))
    return noise, order, scale * float(10 ** rng.uniform(-3, 0.6))


def test_a_large_moment() -> None:
    check_large_moment()


@pytest.mark.parametrize("number", range(20))
def test_random_moments(number: int) -> None:
    check_moments(*random_case(number))


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2, 50))
def test_random_moments_all(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        check_moments(*random_case(number))


@pytest.mark.parametrize("tau", [1e-3, 0.1, 1.0, 4.0])
def test_closed_forms(tau: float) -> None:
    """To 1e-10 of log E_k, against formulas in mpmath that are not the code's."""
    orders = np.array([2, 3, 7, 30, 128, 256])
    with mp.workdps(60):
        t = mp.mpf(tau) / 2
        expected = {
            Gaussian(2.0): [k * (k - 1) * t**2 / 2 for k in orders.tolist()],
            Laplace(2.0): [
                mp.log(mp.mpf(k) / (2 * k - 1) * mp.exp((k - 1) * t) + mp.mpf(k - 1) / (2 * k - 1) * mp.exp(-k * t))
                for k in orders.tolist()
            ],
            Cauchy(2.0): [mp.log(mp.legendre(k - 1, 1 + t**2 / 2)) for k in orders.tolist()],
        }
    for noise, truth in expected.items():
        np.testing.assert_allclose(log_moments(noise, orders, tau), [float(v) for v in truth], rtol=1e-10)


@pytest.mark.parametrize(
    ("general", "closed"), [(StudentT(1, 0.7), Cauchy(0.7)), (VarianceGamma(1, 0.7), Laplace(0.7))]
)
def test_quadrature_against_closed_forms(general: Noise, closed: Noise) -> None:
    """Student-t of one degree is Cauchy, variance-gamma of shape 1 is Laplace: by quadrature, and in closed form."""
    orders = np.arange(2, 65)
    for tau in (1e-4, 0.05, 0.7, 3.0):
        by_quadrature, exact = log_moments(general, orders, tau), log_moments(closed, orders, tau)
        assert np.all(by_quadrature >= exact * (1 - 2e-13)), "the two bounds differ by rounding alone"
        np.testing.assert_allclose(by_quadrature, exact, rtol=1e-10)


def test_the_gaussian_by_quadrature() -> None:
    """exp(-|x|^2) is a Gaussian of deviation 1/sqrt(2), which has no closed form in its own class."""
    orders, tau = np.arange(2, 40), 0.3
    found = log_moments(GeneralizedGaussian(2.0, 1.0), orders, tau)
    np.testing.assert_allclose(found, orders * (orders - 1) * tau**2, rtol=1e-10)
    assert np.all(found >= orders * (orders - 1) * tau**2)


@pytest.mark.parametrize("tau", [0.6, 0.9, 2.0, 5.0])
def test_moments_beyond_the_range_of_a_float_are_infinite(tau: float) -> None:
    """The integrand's mass moves out to k tau, where the density itself underflows: infinite, never too small."""
    orders = np.arange(2, 65)
    found = log_moments(GeneralizedGaussian(2.0, 1.0), orders, tau)
    truth = orders * (orders - 1) * tau**2
    assert np.all(found >= truth * (1 - 1e-14))
    assert np.all(np.isinf(found) | (found <= truth * (1 + 1e-6)))
    assert np.isinf(found[-1])
    assert np.isfinite(found[0])


@pytest.mark.parametrize("noise", [StudentT(3, 0.5), Logistic(0.2), Sech(1.0), Laplace(0.3), Cauchy(0.1)], ids=repr)
def test_monotone(noise: Noise) -> None:
    """In the shift, the order, and convex in the order: log E_k is a cumulant generating function."""
    orders = np.arange(2, 65)
    table = np.array([log_moments(noise, orders, tau) for tau in np.geomspace(1e-4, 3, 30)])
    assert np.all(np.diff(table, axis=0) > 0)
    assert np.all(np.diff(table, axis=1) > 0)
    assert np.all(np.diff(table, n=2, axis=1) >= -1e-9 * table[:, 2:])
    assert np.array_equal(log_moments(noise, orders, 0.0), np.zeros(len(orders)))


def test_scales_are_relative() -> None:
    orders = np.arange(2, 30)
    np.testing.assert_allclose(
        log_moments(StudentT(3, 1e3), orders, 500.0), log_moments(StudentT(3, 1e-3), orders, 5e-4), rtol=1e-12
    )


def test_an_overflow_is_infinite_and_never_clamped() -> None:
    """A law whose likelihood ratio is unbounded: its moments leave the range of a float, their logarithms do not."""
    orders = np.array([64, 256])
    np.testing.assert_allclose(log_moments(Gaussian(0.01), orders, 1.0), orders * (orders - 1) * 5000.0, rtol=1e-12)
    found = log_moments(GeneralizedGaussian(1.5, 0.01), orders, 1.0)
    assert np.all(found > 1000)
    assert not np.any(np.isnan(found))


def test_small_shifts_act_like_a_gaussian_of_the_same_fisher_information() -> None:
    orders = np.arange(2, 33)
    for noise in (StudentT(9, 1.0), StudentT(3, 2.0), Logistic(1.0), Sech(1.0)):
        tau = 1e-4 * noise.known_scale
        limit = orders * (orders - 1) / 2 * noise.fisher_information * tau**2
        np.testing.assert_allclose(log_moments(noise, orders, tau), limit, rtol=1e-5)
