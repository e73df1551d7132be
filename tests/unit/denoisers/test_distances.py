"""The other distances against scipy, quadrature and what is known of pure noise."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

from noisette import Generator, Noise
from noisette._spec import registered
from noisette.denoisers import KS, AndersonDarling, CramerVonMises, Denoiser, Wasserstein
from noisette.denoisers.distance import DistanceShrinkage
from noisette.errors import InvalidInput
from noisette.noise import Cauchy, Gaussian, Laplace, Logistic, ScipyNoise, StudentT
from tests.support.helpers import refused
from tests.support.released_streams import assert_mean, vector

KINDS = (KS, CramerVonMises, AndersonDarling, Wasserstein)
LAWS = [law.examples()[-1] for law in registered(Noise).values()]
WITH_MEAN = [noise for noise in (*LAWS, StudentT(1.5, 2.0)) if math.isfinite(noise.mean_abs)]


@pytest.mark.parametrize("shift", [0.0, 0.4, -3.0])
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_cramer_von_mises(noise: Noise, shift: float) -> None:
    values = noise.sample((700,), Generator(1)).numpy() + shift
    statistic = stats.cramervonmises(values, noise.cdf).statistic
    assert CramerVonMises().distance(vector(values, noise)) == pytest.approx(math.sqrt(statistic / 700), rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "law"),
    [(Gaussian(1.1), stats.norm), (Logistic(0.4), stats.logistic), (Laplace(1.0), stats.laplace)],
    ids=["norm", "logistic", "laplace"],
)
def test_anderson_darling_in_scipy(noise: Noise, law: stats.rv_continuous) -> None:
    for shift in (0.0, 0.5, -2.0):
        values = noise.sample((300,), Generator(2)).numpy() + shift
        known = {"loc": 0, "scale": noise.scale}
        fit = stats.goodness_of_fit(
            law, values, known_params=known, statistic="ad", n_mc_samples=1, rng=np.random.default_rng(0)
        )
        found = AndersonDarling().distance(vector(values, noise))
        assert found == pytest.approx(math.sqrt(fit.statistic / 300), rel=1e-9)


def test_anderson_darling_by_hand() -> None:
    """In 40 digits, with values so far out that 1 - cdf is 0 in floating point."""
    values = sorted([-30.0, -6.0, -1.0, -0.2, 0.0, 0.7, 2.0, 9.0, 35.0])
    n = len(values)
    with mp.workdps(40):
        terms = [(2 * i + 1) * (mp.log(mp.ncdf(values[i])) + mp.log(mp.ncdf(-values[n - 1 - i]))) / n for i in range(n)]
        truth = float(mp.sqrt((-n - mp.fsum(terms)) / n))
    assert AndersonDarling().distance(vector(values, Gaussian(1.0))) == pytest.approx(truth, rel=1e-12)
    assert math.isfinite(AndersonDarling().distance(vector([-1e300, 1e300, 0.0], Gaussian(1.0))))


def area(values: np.ndarray, noise: Noise) -> float:
    """The area between the two distribution functions, by quadrature on each step of the empirical one."""
    x, n = np.sort(values), len(values)
    total = integrate.quad(noise.cdf, -np.inf, x[0], epsabs=1e-12)[0]
    total += integrate.quad(noise.sf, x[-1], np.inf, epsabs=1e-12)[0]
    for i, (a, b) in enumerate(pairwise(x), start=1):
        q = float(np.sign(2 * i - n) * noise.magnitude(1 - abs(2 * i / n - 1)))
        cuts = [a, *(c for c in sorted({0.0, q}) if a < c < b), b]
        total += sum(
            integrate.quad(lambda t, c=i / n: abs(c - float(noise.cdf(t))), lo, hi, epsabs=1e-12)[0]
            for lo, hi in pairwise(cuts)
        )
    return total


@pytest.mark.parametrize("noise", WITH_MEAN, ids=repr)
def test_wasserstein_by_quadrature(noise: Noise) -> None:
    for n, shift in ((1, 0.0), (2, 3.0), (12, 0.0), (12, -0.6)):
        values = noise.sample((n,), Generator(3)).numpy() + shift
        found = Wasserstein().distance(vector(values, noise)) * noise.mean_abs
        assert found == pytest.approx(area(values, noise), rel=1e-7)


@pytest.mark.parametrize("noise", [Gaussian(1.1), Laplace(0.25), StudentT(9, 1.0)], ids=repr)
def test_wasserstein_in_scipy(noise: Noise) -> None:
    """Against a fine quantile sample, which lacks the last of the tails."""
    tail = noise.magnitude((np.arange(200_000) + 0.5) / 200_000)
    for n, shift in ((3_000, 0.0), (3_000, 0.2), (50, 4.0)):
        values = noise.sample((n,), Generator(4)).numpy() + shift
        reference = stats.wasserstein_distance(values, np.concatenate([-tail, tail]))
        found = Wasserstein().distance(vector(values, noise)) * noise.mean_abs
        assert found == pytest.approx(reference, rel=5e-4)


def test_wasserstein_of_what_is_known() -> None:
    noise = StudentT(1.5, 2.0)
    assert Wasserstein().distance(vector(np.zeros(5), noise)) == pytest.approx(1.0, rel=1e-12)
    far = Wasserstein().distance(vector(np.full(5, 1e6), Gaussian(1.0)))
    assert far == pytest.approx(1e6 / math.sqrt(2 / math.pi), rel=1e-12)


@pytest.mark.parametrize("noise", [Cauchy(1.0), StudentT(1.0, 1.0), ScipyNoise("cauchy", scale=1.0)], ids=repr)
def test_wasserstein_without_a_mean(noise: Noise) -> None:
    released = vector(noise.sample((50,), Generator(5)), noise)
    for ask in (
        lambda: Wasserstein().init(noise, 50),
        lambda: Wasserstein().update(released, {}),
        lambda: Wasserstein().distance(released),
    ):
        with refused(InvalidInput, "has no mean"):
            ask()


def test_pure_noise() -> None:
    """n times the square averages 1/6 and 1; sqrt(n) times the area averages that of a Brownian bridge."""
    noise, n = Gaussian(1.0), 1_000
    generator = Generator(6)
    vectors = [vector(noise.sample((n,), generator), noise) for _ in range(600)]
    assert_mean([n * CramerVonMises().distance(v) ** 2 for v in vectors], 1 / 6)
    assert_mean([n * AndersonDarling().distance(v) ** 2 for v in vectors], 1.0)
    bridge, _ = integrate.quad(lambda x: math.sqrt(2 / math.pi * noise.cdf(x) * noise.sf(x)), -9, 9)
    in_units = [math.sqrt(n) * Wasserstein().distance(v) * noise.mean_abs for v in vectors]
    assert_mean(in_units, bridge, slack=0.005)  # n is finite


@pytest.mark.parametrize("kind", KINDS)
def test_free_of_units(kind: type[DistanceShrinkage]) -> None:
    values = Laplace(1.0).sample((500,), Generator(7)) + 0.3
    one = kind().distance(vector(values, Laplace(1.0)))
    assert kind().distance(vector(1e-3 * values, Laplace(1e-3))) == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_distance_times_vector(kind: type[DistanceShrinkage]) -> None:
    """And a signal is farther from the law than noise is."""
    noise = Gaussian(1.0)
    quiet = vector(noise.sample((2_000,), Generator(8)), noise)
    loud = vector(quiet.values + 0.5, noise)
    for released in (quiet, loud):
        d = kind().distance(released)
        assert kind().update(released, {})[0].values.tolist() == (d * released.values).tolist()
        assert kind(threshold=2 * d).update(released, {})[0].values.count_nonzero() == 0
        assert kind(multiplier=5, cap=d).update(released, {})[0].values.tolist() == (d * released.values).tolist()
    assert kind().distance(loud) > 4 * kind().distance(quiet)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters(kind: type[Denoiser]) -> None:
    for bad in (0, -1.0, math.nan, math.inf, "1", True):
        with refused(InvalidInput, "multiplier"):
            kind(multiplier=bad)
        with refused(InvalidInput, "cap"):
            kind(cap=bad)
    for bad in (-1e-9, math.nan, math.inf, "1", None, True):
        with refused(InvalidInput, "threshold"):
            kind(threshold=bad)
    assert repr(kind(multiplier=2, cap=1, threshold=0)) == repr(kind(multiplier=2.0, cap=1.0, threshold=0.0))
