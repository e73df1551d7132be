"""Each law's closed forms against scipy.stats, where scipy has the law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from noisette import Noise
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, Logistic, Sech, StudentT, VarianceGamma

# (ours, scipy's with its scale): parameters are independent of `examples`, so that both are covered
PAIRS = [
    (Gaussian(0.7), stats.norm(scale=0.7)),
    (Laplace(0.7), stats.laplace(scale=0.7)),
    (Cauchy(0.7), stats.cauchy(scale=0.7)),
    (Logistic(0.7), stats.logistic(scale=0.7)),
    (Sech(0.7), stats.hypsecant(scale=0.7 * 2 / math.pi)),
    (StudentT(2.5, 0.7), stats.t(2.5, scale=0.7)),
    (StudentT(9, 1.3), stats.t(9, scale=1.3)),
    (GeneralizedGaussian(0.8, 0.7), stats.gennorm(0.8, scale=0.7)),
    (GeneralizedGaussian(3, 0.7), stats.gennorm(3, scale=0.7)),
    (VarianceGamma(1, 0.7), stats.laplace(scale=0.7)),
]


@pytest.mark.parametrize(("noise", "law"), PAIRS, ids=[repr(noise) for noise, _ in PAIRS])
def test_agrees_with_scipy(noise: Noise, law: stats.distributions.rv_frozen) -> None:
    x = np.concatenate([-np.geomspace(20, 1e-3, 30), [0.0], np.geomspace(1e-3, 20, 30)])
    np.testing.assert_allclose(noise.log_prob(x), law.logpdf(x), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(noise.cdf(x), law.cdf(x), rtol=1e-10)
    np.testing.assert_allclose(noise.sf(x), law.sf(x), rtol=1e-10)
    np.testing.assert_allclose(noise.magnitude([0.9, 0.1, 1e-6]), law.isf([0.45, 0.05, 5e-7]), rtol=1e-9)
    if math.isfinite(noise.std):
        assert noise.std == pytest.approx(law.std(), rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "std", "mean_abs", "fisher"),
    [
        (Gaussian(2.0), 2, 2 * math.sqrt(2 / math.pi), 1 / 4),
        (Laplace(2.0), 2 * math.sqrt(2), 2, 1 / 4),
        (Cauchy(2.0), math.inf, math.inf, 1 / 8),
        (Logistic(2.0), 2 * math.pi / math.sqrt(3), 4 * math.log(2), 1 / 12),
        (Sech(2.0), 2, 2 * 0.7424537454, math.pi**2 / 32),
        (StudentT(4, 2.0), 2 * math.sqrt(2), 2.0, 5 / 28),
        (StudentT(2, 2.0), math.inf, 2 * math.sqrt(2), 3 / 20),
        (StudentT(1, 2.0), math.inf, math.inf, 1 / 8),
        (GeneralizedGaussian(2, 2.0), math.sqrt(2), 2 / math.sqrt(math.pi), 1 / 2),
        (GeneralizedGaussian(1, 2.0), 2 * math.sqrt(2), 2, 1 / 4),
        (GeneralizedGaussian(0.5, 2.0), 2 * math.sqrt(120), 2 * 6, math.inf),
        (VarianceGamma(1, 2.0), 2 * math.sqrt(2), 2, 1 / 4),
        (VarianceGamma(2, 2.0), 4, 3, 0.2981736811615971 / 4),
        (VarianceGamma(0.75, 2.0), 2 * math.sqrt(1.5), 2 * 0.8346268417, math.inf),
    ],
    ids=repr,
)
def test_moments_by_hand(noise: Noise, std: float, mean_abs: float, fisher: float) -> None:
    assert noise.std == pytest.approx(std, rel=1e-9)
    assert noise.mean_abs == pytest.approx(mean_abs, rel=1e-9)
    assert noise.fisher_information == pytest.approx(fisher, rel=1e-7)


def test_gaussian_hockey_stick_is_balle_and_wang() -> None:
    eps, tau, s = np.linspace(-2, 4, 13), 1.3, 0.8
    m = tau / s
    closed = stats.norm.cdf(m / 2 - eps / m) - np.exp(eps) * stats.norm.cdf(-m / 2 - eps / m)
    np.testing.assert_allclose(Gaussian(s).hockey_stick(eps, tau), closed, rtol=1e-12)


def test_laplace_hockey_stick_is_the_known_one() -> None:
    eps, tau, s = np.linspace(0, 3, 13), 1.3, 0.8
    closed = np.maximum(0, -np.expm1((eps - tau / s) / 2))
    np.testing.assert_allclose(Laplace(s).hockey_stick(eps, tau), closed, rtol=1e-12, atol=1e-15)


def test_special_cases_agree() -> None:
    """The same law under two names has the same curve: different code, one truth."""
    eps = np.linspace(-2, 3, 11)
    for one, two in (
        (StudentT(1, 0.7), Cauchy(0.7)),
        (GeneralizedGaussian(1, 0.7), Laplace(0.7)),
        (GeneralizedGaussian(2, 0.7 * math.sqrt(2)), Gaussian(0.7)),
        (VarianceGamma(1, 0.7), Laplace(0.7)),
    ):
        for tau in (0.01, 0.5, 4.0):
            a, b = one.hockey_stick(eps, tau), two.hockey_stick(eps, tau)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
