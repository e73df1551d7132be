"""Calibration: on the safe side of the budget, and within 0.1% of it."""

from __future__ import annotations

import math

import pytest

from noisette import Mechanism, Noise
from noisette.accounting import calibrate, guarantee
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.errors import InvalidInput, Unaccountable
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT, VarianceGamma
from tests.support.accounting_references import DELTA, gaussian_epsilon
from tests.support.helpers import refused

ENCODER = Ranked(dim=20, profiles=HalfNormal(levels=4))


def just_below(mechanism: Mechanism, target: float, accountant: str = "pld") -> None:
    spent = guarantee(mechanism, DELTA, accountant).epsilon
    assert target * (1 - 1e-3) <= spent <= target


@pytest.mark.parametrize("accountant", ["pld", "rdp", pytest.param("rdp-classic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", [Gaussian(), Laplace(), Cauchy(), StudentT(3)], ids=repr)
def test_scale(noise: Noise, accountant: str) -> None:
    found = calibrate(Mechanism(ENCODER, noise, 0.05, 50), 2.0, DELTA, accountant=accountant)
    just_below(found, 2.0, accountant)
    assert found.replace(noise=noise) == Mechanism(ENCODER, noise, 0.05, 50), "nothing else has changed"


@pytest.mark.parametrize("target", [0.01, 50.0])
@pytest.mark.parametrize("noise", [Gaussian(), StudentT(3)], ids=repr)
def test_extreme_targets(noise: Noise, target: float) -> None:
    just_below(calibrate(Mechanism(ENCODER, noise, 1.0, 2), target, DELTA), target)


def test_a_search_that_finds_the_closed_form() -> None:
    """One Gaussian release: the scale that an analytic calibration gives."""
    for target in (0.1, 1.0, 8.0):
        found = calibrate(Mechanism(L2(dim=4), Gaussian(), 1.0, 1), target, DELTA).noise.known_scale
        assert target * (1 - 1.1e-3) <= gaussian_epsilon(1 / found, DELTA) <= target


@pytest.mark.slow
def test_a_law_of_infinite_fisher_information() -> None:
    just_below(calibrate(Mechanism(ENCODER, VarianceGamma(0.6), 0.05, 20), 2.0, DELTA), 2.0)


def test_a_radius_far_from_one() -> None:
    wide = calibrate(Mechanism(L2(dim=4, radius=1e4), Gaussian(), 0.05, 20), 2.0, DELTA).noise.known_scale
    unit = calibrate(Mechanism(L2(dim=4), Gaussian(), 0.05, 20), 2.0, DELTA).noise.known_scale
    assert wide == pytest.approx(1e4 * unit, rel=2e-3)


def test_the_start_does_not_matter_much() -> None:
    """The scale that a mechanism comes with is no part of the answer."""
    answers = [
        calibrate(Mechanism(ENCODER, noise, 0.05, 20), 2.0, DELTA).noise.known_scale
        for noise in (StudentT(3), StudentT(3, 1e-3), StudentT(3, 1e3))
    ]
    assert len(set(answers)) == 1


@pytest.mark.parametrize(
    ("noise", "accountant"), [(Gaussian(0.9), "pld"), (Laplace(1.0), "pld"), (Cauchy(1.0), "rdp")], ids=repr
)
def test_rate(noise: Noise, accountant: str) -> None:
    mechanism = Mechanism(ENCODER, noise, 0.3, 50)
    found = calibrate(mechanism, 2.0, DELTA, field="rate", accountant=accountant)
    just_below(found, 2.0, accountant)
    assert found.replace(rate=0.3) == mechanism


def test_a_budget_that_allows_every_example_every_time() -> None:
    found = calibrate(Mechanism(ENCODER, Gaussian(50.0), 0.01, 1), 10.0, DELTA, field="rate")
    assert found.rate == 1.0


@pytest.mark.parametrize(
    ("accountant", "start"), [("pld", 3), ("rdp", 0), pytest.param("rdp", 100_000, marks=pytest.mark.slow)]
)
def test_steps(accountant: str, start: int) -> None:
    """The most that fit: one more does not."""
    for noise, rate in ((Gaussian(1.2), 0.05), (Cauchy(0.9), 0.1)):
        mechanism = Mechanism(ENCODER, noise, rate, start)
        found = calibrate(mechanism, 1.5, DELTA, field="steps", accountant=accountant)
        assert guarantee(found, DELTA, accountant).epsilon <= 1.5
        assert guarantee(found.replace(steps=found.steps + 1), DELTA, accountant).epsilon > 1.5
        assert found.replace(steps=start) == mechanism


def test_what_cannot_be_had_is_refused() -> None:
    mechanism = Mechanism(ENCODER, Gaussian(0.5), 0.5, 10)
    with refused(Unaccountable, "not even one step"):
        calibrate(mechanism, 0.01, DELTA, field="steps")
    with refused(InvalidInput, "field"):
        calibrate(mechanism, 1.0, DELTA, field="dim")
    with refused(InvalidInput, "no steps"):
        calibrate(mechanism.replace(steps=0), 1.0, DELTA)
    with refused(InvalidInput, "accountant"):
        calibrate(mechanism, 1.0, DELTA, accountant="none")
    for field in ("steps", "rate"):
        with refused(InvalidInput, "no scale"):
            calibrate(mechanism.replace(noise=Gaussian()), 1.0, DELTA, field=field)
    for bad in (0.0, -1.0, math.nan, math.inf, "3"):
        with refused(InvalidInput, "epsilon"):
            calibrate(mechanism, bad, DELTA)
    with refused(InvalidInput, "delta"):
        calibrate(mechanism, 1.0, 0.01, examples=100)
    with refused(Unaccountable, "billion"):
        calibrate(Mechanism(ENCODER, Gaussian(1e4), 1e-6, 1), 50.0, DELTA, field="steps", accountant="rdp")


def test_a_budget_below_what_rdp_can_show() -> None:
    """With orders up to 256 the conversion alone costs 0.0195 at delta = 1e-5; the tight accountant has no floor."""
    mechanism = Mechanism(ENCODER, Gaussian(), 0.05, 20)
    with refused(Unaccountable, "no value reaches the budget"):
        calibrate(mechanism, 0.01, DELTA, accountant="rdp")
    just_below(calibrate(mechanism, 0.01, DELTA), 0.01)


def test_a_rate_between_the_given_one_and_one() -> None:
    found = calibrate(Mechanism(Ranked(dim=1), Gaussian(1.0), 0.9, 1), 4.36, 1e-5, field="rate")
    assert 0.9 < found.rate < 1


@pytest.mark.parametrize("radius", [1e-50, 1e20])
def test_a_scale_follows_the_radius(radius: float) -> None:
    found, plain = (calibrate(Mechanism(L2(dim=1, radius=r), Gaussian(), 0.5, 1), 2.0, 1e-5) for r in (radius, 1.0))
    assert found.noise.known_scale == pytest.approx(plain.noise.known_scale * radius, rel=2e-3)
