"""Accuracy of every law against mpmath: distribution functions in the tails, and hockey sticks as upper bounds."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from noisette import Generator, Noise
from noisette.errors import InvalidInput
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
from tests.support.helpers import refused
from tests.support.mpmath_noise import hockey_stick, reference

LAWS: tuple[Noise, ...] = (
    Cauchy(1.0),
    Gaussian(1.0),
    GeneralizedGaussian(0.2, 1.0),
    GeneralizedGaussian(0.4, 1.0),
    GeneralizedGaussian(0.7, 1.0),
    GeneralizedGaussian(1.5, 1.0),
    GeneralizedGaussian(4, 1.0),
    GeneralizedGaussian(50, 1.0),
    Laplace(1.0),
    Logistic(1.0),
    ScipyNoise("t", 5, scale=1.0),
    ScipyNoise("hypsecant", scale=1.0),
    ScipyNoise("gennorm", 1.3, scale=1.0),
    Sech(1.0),
    StudentT(0.2, 1.0),
    StudentT(0.5, 1.0),
    StudentT(1.5, 1.0),
    StudentT(3, 1.0),
    StudentT(9, 1.0),
    StudentT(100, 1.0),
    VarianceGamma(0.51, 1.0),
    VarianceGamma(0.8, 1.0),
    VarianceGamma(1, 1.0),
    VarianceGamma(1.3, 1.0),
    VarianceGamma(1.499999, 1.0),
    VarianceGamma(2, 1.0),
    VarianceGamma(10, 1.0),
    VarianceGamma(50, 1.0),
)
POINTS = (0.0, 1e-200, 1e-12, 5e-10, 3e-7, 2e-6, 1e-5, 1e-3, 0.1, 0.5, 1.0, 2.9, 3.1, 5.0, 7.9, 8.1, 12.0, 30.0, 300.0)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_tails_are_as_accurate_as_declared(noise: Noise) -> None:
    """Accounting adds `survival_rel_error` for each unit of 1 + |log sf|: the error must be below it, far out too."""
    law = reference(noise)
    for x, found in zip(POINTS, noise.sf(POINTS).tolist(), strict=True):
        truth = law.sf(mp.mpf(x))
        if truth > mp.mpf(10) ** -290:
            allowed = noise.survival_rel_error * (1 - mp.log(truth))
            assert abs(found / truth - 1) <= allowed, (x, found, truth)
        else:
            assert 0 <= found <= 1e-280


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_log_density(noise: Noise) -> None:
    law = reference(noise)
    points = [x for x in POINTS if x < 40]
    for x, found in zip(points, noise.log_prob(points).tolist(), strict=True):
        truth = law.log_prob(mp.mpf(x))
        assert abs(found - truth) <= 1e-12 * (1 + abs(truth)), (x, found, truth)


def bound_faults(noise: Noise, shifts: tuple[float, ...]) -> list[str]:
    """Where the hockey stick is below the truth, or above it by more than the declared error.

    Never below the truth by more than a rounding of 1, 1e-15; above it by at most the declared error.
    Negative eps, eps = 0, shifts from tiny to large, and both sides of the largest loss where the law has one.
    """
    law = reference(noise)
    faults = []
    for tau in shifts:
        eps = np.array([-2.0, -0.3 * min(tau, 1), 0.0, 0.9 * tau, 1.01 * tau])
        for e, found in zip(eps.tolist(), noise.hockey_stick(eps, tau).tolist(), strict=True):
            truth = hockey_stick(law, e, tau)
            where = f"tau={tau} eps={e}: {found} against {mp.nstr(truth, 20)}"
            if found < truth - mp.mpf("1e-15"):
                faults.append(f"too small at {where}")
            if found > truth + 1e-15 + 8 * noise.survival_rel_error * (1 + abs(e)) + 1e-12 * truth:
                faults.append(f"too large at {where}")
    return faults


# Bessel functions at 40 digits take their time: in the normal run one shift for these, all of them in the slow one
BESSEL = [noise for noise in LAWS if isinstance(noise, VarianceGamma)]


@pytest.mark.parametrize("noise", [noise for noise in LAWS if noise not in BESSEL], ids=repr)
def test_hockey_stick_is_an_upper_bound_and_tight(noise: Noise) -> None:
    assert bound_faults(noise, (1e-9, 1.0, 12.0)) == []


@pytest.mark.parametrize("shape", [0.8, 2, 50])
def test_hockey_stick_of_variance_gamma(shape: float) -> None:
    assert bound_faults(VarianceGamma(shape, 1.0), (0.7,)) == []


@pytest.mark.slow
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_hockey_stick_in_full(noise: Noise) -> None:
    shifts = (1e-9, 0.03, 1.0, 12.0) if noise in BESSEL else (1e-30, 1e-9, 0.03, 0.3, 2.0, 60.0)
    assert bound_faults(noise, shifts) == []


def test_a_hockey_stick_a_little_off_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: three parts in 1e12 too little or too much, or a shift taken 1e-9 too short."""
    noise, original = StudentT(9, 1.0), StudentT.hockey_stick
    for spoilt in (
        lambda law, eps, tau: original(law, eps, tau) * (1 - 3e-12),
        lambda law, eps, tau: original(law, eps, tau) * (1 + 3e-12),
        lambda law, eps, tau: original(law, eps, tau * (1 - 1e-9)),
    ):
        monkeypatch.setattr(StudentT, "hockey_stick", spoilt)
        assert bound_faults(noise, (1.0,)) != []


@pytest.mark.parametrize("noise", [noise for noise in LAWS if not isinstance(noise, ScipyNoise)], ids=repr)
def test_extreme_shifts_stay_in_range(noise: Noise) -> None:
    """No warning, no NaN, within [0, 1], at shifts that no accountant meets.

    Not for ScipyNoise: some of scipy's log densities are -inf from 745 scales on.
    """
    eps = np.array([-50.0, 0.0, 1e-9, 1.0, 50.0, 700.0, 1e5])
    for tau in (5e-324, 1e-320, 1e-300, 1e-100, 1e3, 1e5):
        h = noise.hockey_stick(eps, tau)
        assert np.all((h >= 0) & (h <= 1))
    assert np.all(noise.hockey_stick([0.0], 1e5) > 0.5)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_magnitude_inverts_the_tail(noise: Noise) -> None:
    for u in (1.0, 0.999, 0.3, 1e-3, 1e-10, 1e-18):
        m = mp.mpf(float(noise.magnitude(u)))
        tail = 2 * reference(noise).sf(m)
        # a rounding of m by one part in 2^52 moves the tail by about that times the local exponent
        assert abs(tail / mp.mpf(u) - 1) < 1e-9


def test_scale_stretches_the_law() -> None:
    for noise in LAWS[:4]:
        wide = noise.replace(scale=3.0)
        np.testing.assert_allclose(wide.sf([0.3, 6.0]), noise.sf([0.1, 2.0]), rtol=1e-13)
        np.testing.assert_allclose(wide.log_prob([0.3]), noise.log_prob([0.1]) - math.log(3), rtol=1e-12)
        np.testing.assert_allclose(wide.hockey_stick([0.1], 3.0), noise.hockey_stick([0.1], 1.0), rtol=1e-12)
        assert wide.fisher_information == pytest.approx(noise.fisher_information / 9)


def test_an_open_scale_has_no_numbers() -> None:
    noise = StudentT(df=9)
    for ask in (
        lambda: noise.std,
        lambda: noise.fisher_information,
        lambda: noise.sf(1.0),
        lambda: noise.log_prob(1.0),
        lambda: noise.hockey_stick(0.0, 1.0),
        lambda: noise.sample((3,), Generator(1)),
    ):
        with refused(InvalidInput, "no scale"):
            ask()


def test_defaults_of_a_leaf_that_says_little() -> None:
    """ScipyNoise has no closed forms: peak, region, score and moments all come from the base class."""
    plain, known = ScipyNoise("t", 9, scale=1.0), StudentT(9, 1.0)
    eps = np.array([-1.0, 0.0, 0.2, 0.8, 2.0])
    for tau in (0.05, 1.0, 6.0):
        np.testing.assert_allclose(plain.hockey_stick(eps, tau), known.hockey_stick(eps, tau), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(plain.score([0.5, 2.0, -3.0]), known.score([0.5, 2.0, -3.0]), rtol=1e-7)
    assert plain.fisher_information == pytest.approx(known.fisher_information, rel=1e-7)
    assert plain.mean_abs == pytest.approx(known.mean_abs, rel=1e-9)
    assert ScipyNoise("cauchy", scale=1.0).mean_abs == math.inf
    assert ScipyNoise("t", 1.5, scale=1.0).std == math.inf
