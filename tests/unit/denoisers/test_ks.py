"""The Kolmogorov-Smirnov distance against scipy's, and the paper's formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from noisette import Generator, Noise
from noisette._spec import registered
from noisette.denoisers import KS
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT
from tests.support.released_streams import assert_mean, vector

MODEL = 26_010  # the paper's MNIST model
FIRST = [law.examples()[0] for law in registered(Noise).values()]
ALL = [noise for law in registered(Noise).values() for noise in law.examples()]


def plain(values: np.ndarray, noise: Noise) -> float:
    return float(stats.kstest(values, noise.cdf, method="asymp").statistic)


def assert_exact(values: np.ndarray, noise: Noise) -> None:
    assert KS().distance(vector(values, noise)) == pytest.approx(plain(values, noise), rel=0, abs=1e-12)


@pytest.mark.parametrize("noise", FIRST, ids=repr)
def test_equals_scipy(noise: Noise) -> None:
    assert_exact(noise.sample((MODEL,), Generator(1)).numpy(), noise)


@pytest.mark.parametrize("noise", [Gaussian(1.1), StudentT(9, 1.0), Laplace(0.25), Cauchy(0.3)], ids=repr)
def test_equals_scipy_on_a_large_model(noise: Noise) -> None:
    assert_exact(noise.sample((550_000,), Generator(2)).numpy(), noise)


@pytest.mark.slow
@pytest.mark.parametrize("n", [MODEL, 550_000])
@pytest.mark.parametrize("noise", ALL, ids=repr)
def test_equals_scipy_for_every_law(noise: Noise, n: int) -> None:
    assert_exact(noise.sample((n,), Generator(3)).numpy(), noise)


@pytest.mark.parametrize("noise", [Gaussian(1.0), StudentT(3, 0.5)], ids=repr)
def test_equals_scipy_on_odd_samples(noise: Noise) -> None:
    """Shifts, other scales, ties, a constant, far tails, and a sample that is never off by more than 1/(2n)."""
    draws = noise.sample((5_003,), Generator(4)).numpy()
    evenly = noise.magnitude((np.arange(2_500) + 0.5) / 2_500)
    samples = [draws + 0.3, draws + 40, 3 * draws, 0.01 * draws, draws.round(1), draws.round(), np.abs(draws)]
    samples += [
        np.zeros(100),
        np.full(7, 1e300),
        np.array([0.1]),
        np.array([3.0, -1.0]),
        np.append(draws, [1e300] * 50),
    ]
    samples += [np.concatenate([evenly, -evenly]), np.sign(draws)]
    for sample in samples:
        assert_exact(sample, noise)


@given(st.lists(st.floats(-50, 50) | st.integers(-3, 3).map(float), min_size=1, max_size=60))
def test_equals_scipy_on_any_sample(values: list[float]) -> None:
    assert_exact(np.array(values), Gaussian(1.0))


def test_few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is asked about less than 2% of the values of pure noise."""
    noise, asked = Gaussian(1.0), []
    draws = vector(noise.sample((550_000,), Generator(5)), noise)
    original = Gaussian.cdf

    def counting(self: Gaussian, x: np.ndarray) -> np.ndarray:
        asked.append(np.size(x))
        return original(self, x)

    monkeypatch.setattr(Gaussian, "cdf", counting)
    KS().distance(draws)
    assert 0 < sum(asked) < 0.02 * 550_000


def test_pure_noise_sits_at_its_expected_value() -> None:
    """Mean over 300 vectors, sqrt(pi/2) ln(2) / sqrt(n); one vector of the paper's model, within its exact law."""
    noise, n, generator = StudentT(9, 1.0), 2_000, Generator(6)
    distances = [KS().distance(vector(noise.sample((n,), generator), noise)) for _ in range(300)]
    limit = math.sqrt(math.pi / 2) * math.log(2)
    assert_mean(distances, limit / math.sqrt(n), slack=1 / (5 * n))  # the mean falls short of the limit by 1/(6n)
    assert limit / math.sqrt(MODEL) == pytest.approx(0.0054, abs=1e-4)
    on_model = KS().distance(vector(noise.sample((MODEL,), generator), noise))
    assert stats.kstwo(MODEL).ppf(5e-7) < on_model < stats.kstwo(MODEL).isf(5e-7)


def test_the_paper() -> None:
    """Distance times vector, and nothing else; a signal is scaled less than noise is."""
    noise = StudentT(9, 1.0)
    quiet = noise.sample((MODEL,), Generator(7))
    for values in (quiet, quiet + 0.5):
        denoised, state = KS().update(vector(values, noise), {})
        torch.testing.assert_close(denoised.values, plain(values.numpy(), noise) * values, rtol=1e-12, atol=0)
        assert state == {}
    assert KS().distance(vector(quiet + 0.5, noise)) > 20 * KS().distance(vector(quiet, noise))


def test_multiplier_cap_and_threshold() -> None:
    noise = Gaussian(1.0)
    released = vector([0.0, 0.0, 3.0, 4.0], noise)
    d = plain(released.values.numpy(), noise)  # 0.5, at 0 from below
    assert d == 0.5
    for denoiser, factor in (
        (KS(), d),
        (KS(multiplier=3.0), 3 * d),
        (KS(multiplier=3.0, cap=1.2), 1.2),
        (KS(multiplier=2.0, cap=1.2), 2 * d),
        (KS(threshold=0.5), d),
        (KS(threshold=math.nextafter(0.5, 1)), 0.0),
        (KS(multiplier=9.0, cap=2.0, threshold=0.6), 0.0),
    ):
        assert denoiser.update(released, {})[0].values.tolist() == [0.0, 0.0, 3 * factor, 4 * factor]
