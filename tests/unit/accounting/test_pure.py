"""Epsilon at delta = 0: exact where a law's losses are bounded, refused with a way out where they are not."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from noisette import Mechanism, Noise, calibrate, guarantee
from noisette.accounting import accountants, guarantees
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import GeometricNumTrials
from noisette.encoders import L2, Encoder, Ranked
from noisette.encoders.profiles import Blocks, HalfNormal, Tails
from noisette.errors import Unaccountable
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
from tests.support.mpmath_noise import reference

BOUNDED = [
    Laplace(1.3),
    Cauchy(0.4),
    StudentT(3, 0.5),
    StudentT(30, 1.0),
    Logistic(0.7),
    Sech(0.6),
    GeneralizedGaussian(0.7, 0.5),
    GeneralizedGaussian(1, 2.0),
    VarianceGamma(0.8, 1.0),
    VarianceGamma(2, 0.5),
]


@pytest.mark.parametrize("noise", BOUNDED, ids=repr)
@pytest.mark.parametrize("tau", [0.01, 0.6, 3.0])
def test_no_outcome_loses_more_and_some_lose_as_much(noise: Noise, tau: float) -> None:
    """Against mpmath's densities over the whole line, far out included."""
    law, shift = reference(noise), mp.mpf(tau) / mp.mpf(noise.known_scale)
    y = np.concatenate([np.linspace(-0.5, 4, 40) * float(shift), np.geomspace(0.1, 600, 60)])
    truth = max(law.log_prob(abs(mp.mpf(x))) - law.log_prob(abs(mp.mpf(x) + shift)) for x in (0.0, *y.tolist()))
    found = float(noise.largest_loss(tau))
    assert truth <= found * (1 + 1e-14)
    assert found <= truth * 1.01


@pytest.mark.parametrize(("scale", "rate", "steps"), [(1.0, 1.0, 100), (2.0, 0.05, 300), (0.3, 0.5, 7)])
def test_one_coordinate_as_dp_accounting_has_it(scale: float, rate: float, steps: int) -> None:
    """Their lattice rounds up by at most an interval a step, and ours is the closed form."""
    found = guarantee(Mechanism(Ranked(dim=1), Laplace(scale), rate, steps), 0).epsilon
    interval = 1e-4
    one = privacy_loss_distribution.from_laplace_mechanism(
        scale, value_discretization_interval=interval, sampling_prob=rate
    )
    theirs = one.get_epsilon_for_delta(0.0) * steps
    assert theirs - 1.01 * interval * steps <= found <= theirs * (1 + 1e-9)
    exact = steps * mp.log(1 + mp.mpf(rate) * mp.expm1(1 / mp.mpf(scale)))
    assert exact <= found <= exact * (1 + mp.mpf(10) ** -9)


def test_many_coordinates_add_up_and_the_worst_profile_counts() -> None:
    encoder = Ranked(dim=60, profiles=Tails(shapes=(2.0, 0.7, 0.3), levels=5))
    block = encoder.blocks[0]
    longest = max(math.fsum((row * block.counts).tolist()) for row in block.levels)
    assert guarantee(Mechanism(encoder, Laplace(9.0), 1.0, 3), 0).epsilon == pytest.approx(longest / 3, rel=1e-9)
    halves = Ranked(dim=60, profiles=Blocks(dims=(20, 40), profiles=HalfNormal(levels=4)))
    total = sum(math.fsum((b.levels[0] * b.counts).tolist()) for b in halves.blocks)
    assert guarantee(Mechanism(halves, Laplace(9.0), 1.0, 3), 0).epsilon == pytest.approx(total / 3, rel=1e-9)


@pytest.mark.parametrize("name", accountants())
def test_every_accountant_says_the_same_and_less_at_a_delta(name: str) -> None:
    mechanism = Mechanism(Ranked(dim=5), Laplace(4.0), 0.1, 20)
    found = guarantee(mechanism, 0, name)
    assert found.epsilon == guarantee(mechanism, 0.0).epsilon
    assert (found.delta, found.kind, found.arithmetic) == (0.0, "bound", "real numbers only")
    assert guarantee(mechanism, 1e-9).epsilon < found.epsilon


def test_several_lengths_several_mechanisms_and_text() -> None:
    one, other = Mechanism(Ranked(dim=1), Laplace(2.0), 1.0, 4), Mechanism(Ranked(dim=1), Cauchy(1.0), 1.0, 2)
    assert guarantee((one, other), 0).epsilon == pytest.approx(2 + 4 * math.asinh(0.5), rel=1e-9)
    assert {n: round(g.epsilon, 6) for n, g in guarantees(one, [1, 3], 0).items()} == {1: 0.5, 3: 1.5}
    same = one.replace(noise=ScipyNoise("laplace", scale=2.0))
    assert guarantee(same, 0).epsilon == guarantee(one, 0).epsilon
    assert str(guarantee(one, 0)).endswith("at delta = 0")
    assert "a chance of 0" in guarantee(one, 0).explain()


@pytest.mark.parametrize("encoder", [L2(dim=9), Ranked(dim=9)])
def test_gaussian_noise_is_refused_with_a_way_out(encoder: Encoder) -> None:
    for noise in (Gaussian(1.0), *([GeneralizedGaussian(1.5, 1.0)] if isinstance(encoder, Ranked) else [])):
        with refused(Unaccountable, f"{type(noise).__name__} noise has no finite epsilon at delta = 0"):
            guarantee(Mechanism(encoder, noise, 0.1, 5), 0)
        with refused(Unaccountable, "no finite epsilon at delta = 0"):
            calibrate(Mechanism(encoder, noise.replace(scale=None), 0.1, 5), 1.0, 0)


def test_searches_are_refused_with_a_way_out() -> None:
    mechanism = Mechanism(Ranked(dim=1), Laplace(2.0), 0.1, 5)
    with refused(Unaccountable, "choosing the best"):
        guarantee(BestOf((mechanism,), GeometricNumTrials(3)), 0)
    with refused(Unaccountable, "choosing the best"):
        calibrate(mechanism, 1.0, 0, trials=GeometricNumTrials(3))


def test_calibration() -> None:
    plan = Mechanism(Ranked(dim=1), Laplace(), 1.0, 10)
    found = calibrate(plan, 2.0, 0)
    assert 4.999999 < found.noise.known_scale < 5.006
    assert guarantee(found, 0).epsilon <= 2.0
    assert calibrate(plan.replace(noise=Laplace(5.0)), 3.0001, 0, field="steps").steps == 15
    rate = calibrate(plan.replace(noise=Laplace(1.0)), 2.0, 0, field="rate").rate
    assert rate == pytest.approx(math.expm1(0.2) / math.expm1(1.0), rel=2e-3)
    assert guarantee(plan.replace(noise=Laplace(1.0), rate=rate), 0).epsilon <= 2.0


def test_what_hides_nothing_is_refused_as_such() -> None:
    with refused(Unaccountable, "no finite epsilon could be shown"):
        guarantee(Mechanism(Ranked(dim=1), Laplace(1e-3), 1.0, 1), 0)


def test_a_delta_too_small_for_losses_gets_the_largest_loss() -> None:
    found = guarantee(Mechanism(Ranked(dim=1), Laplace(1.0), 1.0, 100), 1e-290)
    assert found.epsilon == pytest.approx(100, rel=1e-9)
