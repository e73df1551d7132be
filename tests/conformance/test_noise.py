"""P4, P11 (one dimension) and the mathematics of every registered noise law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from noisette import Generator, Noise
from noisette._spec import registered
from noisette.noise import Gaussian, StudentT
from tests.conformance.noise_checks import NOISE_CHECKS
from tests.conformance.statistics import ks_distance, ks_rejects, sampling_faults

LAWS = [noise for law in registered(Noise).values() for noise in law.examples()]


def test_every_law_is_here() -> None:
    """The nine laws of the paper and the issue, by name, so that a lost registration is noticed."""
    assert {
        "Cauchy",
        "Gaussian",
        "GeneralizedGaussian",
        "Laplace",
        "Logistic",
        "ScipyNoise",
        "Sech",
        "StudentT",
        "VarianceGamma",
    } <= set(registered(Noise))


@pytest.mark.parametrize("check", NOISE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_law(noise: Noise, check: Callable[[Noise], None]) -> None:
    check(noise)


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_draws_follow_the_law(noise: Noise) -> None:
    """P4, 4e5 draws at a level of 1e-6 a test; and the planted fault, noise x0.95, is seen by one of them."""
    draws = noise.sample((400_000,), Generator(11)).numpy()
    assert sampling_faults(noise, draws) == []
    assert ks_rejects(noise, 0.95 * draws)


@pytest.mark.slow
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_draws_follow_the_law_in_full(noise: Noise) -> None:
    """P4 at its full count: 4e6 draws pass, and the same draws x0.98 do not."""
    draws = noise.sample((4_000_000,), Generator(12)).numpy()
    assert sampling_faults(noise, draws) == []
    assert ks_rejects(noise, 0.98 * draws)


def test_other_faults_are_caught() -> None:
    """One planted fault for each kind of test: tails, signs, dependence, coarseness."""
    noise = StudentT(9, 1.0)
    draws = noise.sample((400_000,), Generator(13)).numpy()

    clipped = np.clip(draws, -noise.magnitude(2e-4), noise.magnitude(2e-4))
    assert "exceedance 0.0001" in sampling_faults(noise, clipped)

    heavy = np.where(np.abs(draws) > noise.magnitude(1e-3), 1.5 * draws, draws)
    assert "exceedance 0.0001" in sampling_faults(noise, heavy)

    one_sided_tail = np.where(np.abs(draws) > noise.magnitude(1e-3), np.abs(draws), draws)
    assert "sign beyond 0.001" in sampling_faults(noise, one_sided_tail)

    assert "sign" in sampling_faults(noise, np.where(np.arange(len(draws)) % 50 == 0, np.abs(draws), draws))

    sticky = draws.copy()
    sticky[1::40] = np.abs(sticky[1::40]) * np.sign(sticky[::40])
    assert "sign at lag 1" in sampling_faults(noise, sticky)

    copied = draws.reshape(-1, 50).copy()
    copied[:, 30] = copied[:, 3] * 0.999
    assert "size across coordinates" in sampling_faults(noise, copied.ravel())

    half_repeated = np.concatenate([draws[:200_000], draws[:200_000]])
    assert {"repeats", "sign at lag 200000"} <= set(sampling_faults(noise, half_repeated))

    assert "repeats" in sampling_faults(noise, draws.astype(np.float32).astype(np.float64))
    assert sampling_faults(noise, np.where(np.arange(len(draws)) == 5, np.inf, draws))[0] == "not finite"
    assert {"ks", "sign", "repeats", "all of one size"} <= set(sampling_faults(noise, np.zeros(400_000)))
    gaussian = Gaussian(noise.std).sample((400_000,), Generator(14)).numpy()
    assert "ks" in sampling_faults(noise, gaussian), "the right variance is not enough"


def test_ks_distance_is_exact() -> None:
    """The quick distance equals the plain definition."""
    noise = Gaussian(1.0)
    for seed, factor in ((1, 1.0), (2, 1.0), (3, 0.9), (4, 3.0)):
        draws = factor * noise.sample((5_003,), Generator(seed)).numpy()
        plain = stats.kstest(draws, noise.cdf).statistic
        assert ks_distance(draws, noise.cdf) == pytest.approx(plain, rel=1e-12)
