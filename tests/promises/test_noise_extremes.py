"""P8 over all laws, parameters and orders of magnitude: H is never too small, and what is outside is refused.

Each case is one point of the hockey stick against quadrature at 50 digits.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from noisette import Generator, Noise
from noisette.errors import InvalidInput, Unaccountable
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, Logistic, ScipyNoise, StudentT, VarianceGamma
from noisette.noise import _rejection_sampler as strips_module
from noisette.noise._rejection_sampler import Strips
from tests.conformance.statistics import ks_rejects
from tests.support.extreme_noise import BELOW, exact, random_case
from tests.support.helpers import refused


def faults(numbers: range) -> list[str]:
    """Where the hockey stick is below the truth by more than a rounding, or above it by more than it says."""
    found = []
    for number in numbers:
        noise, tau, eps = random_case(number)
        h, truth = float(noise.hockey_stick(eps, tau)), exact(noise, eps, tau)
        where = f"{number}: {noise} tau={tau} eps={eps}: {h} against {mp.nstr(truth, 12)}"
        if not h >= truth * (1 - BELOW) - mp.mpf("1e-18"):
            found.append(f"too small {where}")
        # the margin is a rounding of e^eps times a tail, which for heavy tails grows like the shift
        if not h <= truth * (1 + 1e-6) + 200 * noise.survival_rel_error * (1 + min(tau, 1e6)) + 1e-14:
            found.append(f"too large {where}")
    return found


@pytest.mark.parametrize("twenties", range(3))
def test_never_too_small(twenties: int) -> None:
    assert faults(range(20 * twenties, 20 * twenties + 20)) == []


def test_losses_just_below_zero() -> None:
    """Two of the cases beyond: 1 - e^eps was rounded at 1e-16 where H is 1e-12."""
    assert faults(range(310, 311)) + faults(range(396, 397)) == []


def test_a_hockey_stick_a_little_off_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a millionth too little, or a shift taken a millionth too short."""
    original = Noise.hockey_stick
    for spoilt in (
        lambda law, eps, tau: original(law, eps, tau) * (1 - 1e-6),
        lambda law, eps, tau: original(law, eps, tau * (1 - 1e-6)),
    ):
        monkeypatch.setattr(Noise, "hockey_stick", spoilt)
        assert any("too small" in fault for fault in faults(range(10)))


@pytest.mark.slow
@pytest.mark.parametrize("hundreds", range(32))
def test_never_too_small_in_full(hundreds: int) -> None:
    assert faults(range(100 * hundreds, 100 * hundreds + 100)) == []


@pytest.mark.parametrize("df", [0.2, 1.0, 3.0, 1e6])
@pytest.mark.parametrize("tau", [1e4, 1e6])
def test_the_largest_loss_of_heavy_tails(df: float, tau: float) -> None:
    """Known in closed form: H is above zero up to there, however far out."""
    noise = StudentT(df, 1.0)
    top = (df + 1) * math.asinh(tau / 2 / math.sqrt(df))
    if top < 600:
        near = top * (1 - 1e-3)
        assert float(noise.hockey_stick(near, tau)) >= float(exact(noise, near, tau)) * (1 - 1e-9) > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(1e-309),
        lambda: Laplace(1e-309),
        lambda: Logistic(1e300),
        lambda: GeneralizedGaussian(1000, 1.0),
        lambda: GeneralizedGaussian(80, 1.0),
        lambda: GeneralizedGaussian(0.02, 1.0),
        lambda: StudentT(1e16, 1.0),
        lambda: StudentT(0.1, 1.0),
        lambda: VarianceGamma(0.5, 1.0),
        lambda: ScipyNoise("gennorm", 60, scale=0.5),  # its sf is flat near 0
        lambda: ScipyNoise("norminvgauss", 1, 0, scale=0.5),  # its sf is not the integral of its density
    ],
)
def test_parameters_outside_are_refused(make: object) -> None:
    with refused(InvalidInput):
        make()  # type: ignore[operator]


def test_shifts_outside_are_refused() -> None:
    for noise in (Cauchy(1e-9), StudentT(3, 1e-12), Gaussian(1e-100)):
        with refused(Unaccountable, "hides nothing"):
            noise.hockey_stick(1.0, 1.0)
        with refused(Unaccountable, "hides nothing"):
            noise.log_moments([2], 1.0)
    for tau in (math.inf, math.nan, -math.inf):
        with refused(InvalidInput, "tau"):
            Cauchy(1.0).hockey_stick(1.0, tau)
    with refused(InvalidInput, "eps"):
        Cauchy(1.0).hockey_stick([0.0, math.nan], 1.0)


def test_shifts_and_losses_are_rounded_to_the_safe_side() -> None:
    noise = StudentT(3, 1.0)
    assert noise.hockey_stick(0.0, 1e-300) == noise.hockey_stick(0.0, 1e-15) > 0
    assert noise.hockey_stick(0.0, 0.0) == 0
    assert np.array_equal(noise.hockey_stick([1e5, math.inf], 5.0), noise.hockey_stick([700.0, 700.0], 5.0))


@pytest.mark.parametrize("part", ["_loss", "_standard_sf", "_loss_interval"])
def test_what_is_not_a_number_is_the_ceiling(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN from a law, wherever it comes from, makes H = 1, and never "no loss"."""
    noise = GeneralizedGaussian(1.5, 1.0)
    lost = {
        "_loss": lambda self, y, tau: np.full(np.shape(y), np.nan),
        "_standard_sf": lambda self, x: np.full(np.shape(x), np.nan),
        "_loss_interval": lambda self, eps, tau: (np.full_like(eps, np.nan), np.full_like(eps, np.nan)),
    }[part]
    monkeypatch.setattr(GeneralizedGaussian, part, lost)
    assert np.array_equal(noise.hockey_stick([-1.0, 0.0, 3.0], 1.0), [1.0, 1.0, 1.0])


ENDS = [
    StudentT(0.2, 1.0),
    StudentT(1e6, 1.0),
    GeneralizedGaussian(0.2, 1.0),
    GeneralizedGaussian(50, 1.0),
    VarianceGamma(0.501, 1.0),
    VarianceGamma(50, 1.0),
]


@pytest.mark.parametrize("noise", ENDS, ids=repr)
def test_draws_follow_the_law_at_the_ends_of_its_domain(noise: Noise) -> None:
    """Kolmogorov-Smirnov at a level of 1e-6 with 200,000 draws; Student-t draws against scipy's law too."""
    draws = noise.sample((200_000,), Generator(31)).numpy()
    assert np.all(np.isfinite(draws))
    assert not ks_rejects(noise, draws)
    if isinstance(noise, StudentT):
        assert stats.kstest(draws[:20_000], stats.t(noise.df).cdf).pvalue > 1e-6


def test_a_sampler_that_would_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips_module, "_MOST_COVER", 1.001)
    with refused(InvalidInput, "cannot be drawn"):
        Strips(VarianceGamma(2, 1.0))
