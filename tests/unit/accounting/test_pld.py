"""The privacy-loss accountant: references, dp_accounting, RDP, simulation, monotone in everything."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as reference

from noisette import Mechanism, Noise
from noisette.accounting import guarantee, pld
from noisette.accounting._pmf import Pmf
from noisette.accounting._step_divergence import Curve, step_curve
from noisette.accounting.account import epsilon
from noisette.accounting.pld import Losses, addition, privacy_loss, removal, sampled_reach
from noisette.encoders import L2, Encoder, Ranked
from noisette.encoders.profiles import Blocks, HalfNormal, Tails
from noisette.noise import Cauchy, Gaussian, Laplace, Logistic, Sech, StudentT
from tests.support import accounting_checks
from tests.support.accounting_references import DELTA, RATE, gaussian_of_dp_accounting, laplace_of_dp_accounting

SMALL = HalfNormal(levels=5)
NOISES = (Gaussian(1.0), Laplace(0.8), Cauchy(0.7), StudentT(3, 0.8), StudentT(9, 1.0))


def test_reference_values() -> None:
    accounting_checks.check_gaussian_reference()
    accounting_checks.check_student_reference()
    accounting_checks.check_student_three()
    accounting_checks.check_few_steps()
    accounting_checks.check_both_directions()
    accounting_checks.check_micro_batches()


@pytest.mark.parametrize(("sigma", "steps"), [(0.8, 14_062), (1.4, 14_062), (1.1, 23_400)])
def test_gaussian_against_dp_accounting(sigma: float, steps: int) -> None:
    """P9. Within +0.5% and not more than 0.02% below its own upper bound."""
    theirs = gaussian_of_dp_accounting(sigma, RATE, steps, DELTA)
    ours = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), RATE, steps), DELTA).epsilon
    assert theirs * (1 - 2e-4) <= ours <= theirs * 1.005


@pytest.mark.slow
@pytest.mark.parametrize("steps", [14_062, 23_400])
@pytest.mark.parametrize("sigma", [0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4])
def test_gaussian_against_dp_accounting_finely(sigma: float, steps: int) -> None:
    theirs = gaussian_of_dp_accounting(sigma, RATE, steps, DELTA, interval=2e-5)
    ours = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), RATE, steps), DELTA).epsilon
    assert theirs * (1 - 2e-4) <= ours <= theirs * 1.005


@pytest.mark.parametrize(
    ("scale", "rate", "steps", "delta"),
    [(1.0, 0.1, 50, 1e-5), (0.5, 0.02, 200, 1e-6), (3.0, 1.0, 20, 1e-5), (0.2, 0.01, 30, 1e-8), (20.0, 0.5, 400, 1e-3)],
)
def test_laplace_against_dp_accounting(scale: float, rate: float, steps: int, delta: float) -> None:
    theirs = laplace_of_dp_accounting(scale, rate, steps, delta)
    ours = guarantee(Mechanism(Ranked(dim=1), Laplace(scale), rate, steps), delta).epsilon
    assert theirs * (1 - 2e-4) <= ours <= theirs * 1.005


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"), [(0.5, 0.01, 100, 1e-6), (5.0, 0.5, 1000, 1e-5), (1, 1, 3, 1e-3)]
)
def test_gaussian_elsewhere(sigma: float, rate: float, steps: int, delta: float) -> None:
    theirs = gaussian_of_dp_accounting(sigma, rate, steps, delta)
    ours = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), rate, steps), delta).epsilon
    assert theirs * (1 - 2e-4) <= ours <= theirs * 1.005


@pytest.mark.parametrize("noise", [StudentT(3, 0.8), Laplace(1.0), Cauchy(0.6), StudentT(9, 0.5)], ids=repr)
def test_simulated_losses(noise: Noise) -> None:
    """P10: the exact likelihood ratio of 3 sampled steps in 50 dimensions, both directions, at level 6e-7 each."""
    accounting_checks.check_simulation(noise, dim=50, rate=0.3, steps=3, draws=40_000, seed=20)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [StudentT(3, 0.8), Laplace(1.0), Cauchy(0.6), StudentT(9, 0.5)], ids=repr)
@pytest.mark.parametrize(("dim", "rate", "steps"), [(50, 0.3, 3), (5, 0.05, 10), (20, 1.0, 2)])
def test_simulated_losses_at_length(noise: Noise, dim: int, rate: float, steps: int) -> None:
    if rate == 1.0:
        rate = 0.999  # the simulation takes the logarithm of 1 - rate
    accounting_checks.check_simulation(noise, dim, rate, steps, draws=400_000, seed=21)


SETTINGS = [
    (noise, encoder, rate, steps)
    for noise in NOISES
    for encoder in (Ranked(dim=1), Ranked(dim=200, profiles=Tails(shapes=(2.0, 0.5), levels=3)))
    for rate, steps in ((RATE, 2000), (0.05, 100), (0.3, 10), (1.0, 1))
]


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_pld_is_not_above_rdp(each: int) -> None:
    """P10 on 40 settings, or a third of them: noises, rates, steps, images of one coordinate and of two profiles."""
    assert len(SETTINGS) == 40
    ratios = []
    for noise, encoder, rate, steps in SETTINGS[::each]:
        run = (Mechanism(encoder, noise, rate, steps),)
        tight, renyi = epsilon(run, DELTA), epsilon(run, DELTA, "rdp")
        assert 0 < tight <= renyi, run
        ratios.append(tight / renyi)
    assert np.median(ratios) > 0.7, "and the two are near each other"


@pytest.mark.parametrize("accountant", ["pld", "rdp", pytest.param("rdp-classic", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "noise",
    [Gaussian(1.0), Cauchy(0.7), StudentT(3, 0.8), pytest.param(Laplace(0.8), marks=pytest.mark.slow)],
    ids=repr,
)
def test_monotone(noise: Noise, accountant: str) -> None:
    """P8: epsilon grows with the steps, the rate, 1/scale and 1/delta."""
    base = Mechanism(Ranked(dim=30, profiles=SMALL), noise, rate=0.05, steps=20)
    scale = noise.known_scale
    chains = (
        [(base.replace(steps=steps), DELTA) for steps in (1, 20, 21, 400)],
        [(base.replace(rate=rate), DELTA) for rate in (1e-3, 0.05, 0.051, 1.0)],
        [(base.replace(noise=noise.replace(scale=scale * f)), DELTA) for f in (30, 1.02, 1, 0.2)],
        [(base, delta) for delta in (0.1, 1e-3, 1e-5, 9e-6, 1e-9)],
    )
    for chain in chains:
        found = [epsilon((mechanism,), delta, accountant) for mechanism, delta in chain]
        assert np.all(np.diff(found) >= 0), found
        assert found[0] < found[-1]


@pytest.mark.parametrize("noise", [StudentT(3, 0.8), Gaussian(1.0), Laplace(0.5)], ids=repr)
def test_steps_may_be_split(noise: Noise) -> None:
    mechanism = Mechanism(Ranked(dim=30, profiles=SMALL), noise, rate=0.2, steps=7)
    whole = epsilon((mechanism,), DELTA)
    split = epsilon((mechanism.replace(steps=3), mechanism.replace(steps=4)), DELTA)
    assert split == pytest.approx(whole, rel=1e-9)
    with_none = epsilon((mechanism, mechanism.replace(steps=0, rate=1.0)), DELTA)
    assert with_none == pytest.approx(whole, rel=1e-12)


def test_heterogeneous_runs() -> None:
    """Noises and rates that differ: the order does not matter, and every part counts."""
    encoder = Ranked(dim=30, profiles=SMALL)
    parts = (
        Mechanism(encoder, StudentT(3, 0.8), 0.1, 3),
        Mechanism(L2(dim=30), Gaussian(1.3), 0.02, 40),
        Mechanism(encoder, Laplace(1.5), 1.0, 1),
    )
    whole = epsilon(parts, DELTA)
    assert epsilon(parts[::-1], DELTA) == pytest.approx(whole, rel=1e-6)
    assert epsilon((parts[1], parts[0], parts[2]), DELTA) == pytest.approx(whole, rel=1e-6)
    single = [epsilon((part,), DELTA) for part in parts]
    assert max(single) < whole < sum(single)
    assert whole <= epsilon(parts, DELTA, "rdp")


def test_heterogeneous_gaussians_against_dp_accounting() -> None:
    settings = ((1.1, 0.01, 200), (0.8, 0.002, 500), (4.0, 1.0, 3))
    theirs = None
    for sigma, rate, steps in settings:
        one = reference.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)
        theirs = one if theirs is None else theirs.compose(one)
    expected = theirs.get_epsilon_for_delta(DELTA)
    ours = epsilon(tuple(Mechanism(L2(dim=2), Gaussian(s), q, t) for s, q, t in settings), DELTA)
    assert expected * (1 - 2e-4) <= ours <= expected * 1.005


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.7, 1.0])
def test_sampled_curves_are_those_of_the_mixture(rate: float) -> None:
    """Against the integral of the positive part of the mixture, one coordinate, both directions."""
    noise = StudentT(3, 0.7)
    curve = step_curve(Ranked(dim=1), noise)
    x = np.linspace(-3000, 3000, 3_000_001)
    p, q = np.exp(noise.log_prob(x - 1.0)), np.exp(noise.log_prob(x))
    mixture, width = (1 - rate) * q + rate * p, x[1] - x[0]
    eps = np.array([-0.5, -0.01, 0.0, 0.003, 0.2, 1.0, 3.0])
    floor = np.maximum(-np.expm1(eps), 0.0)
    forward = [float(np.maximum(mixture - np.exp(e) * q, 0).sum() * width) for e in eps]
    backward = [float(np.maximum(q - np.exp(e) * mixture, 0).sum() * width) for e in eps]
    np.testing.assert_allclose(removal(curve, rate)(eps) + floor, forward, rtol=1e-5, atol=2e-8)
    np.testing.assert_allclose(addition(curve, rate)(eps) + floor, backward, rtol=1e-5, atol=2e-8)


def test_the_worse_of_both_directions_counts() -> None:
    mild, grave = Pmf(0.5, 0, np.array([0.9, 0.1]), 0.0), Pmf(0.5, 0, np.array([0.5, 0.3, 0.2]), 1e-3)
    eps = np.array([0.0, 0.2, 0.7])
    for losses in (Losses(mild, grave), Losses(grave, mild)):
        assert losses.epsilon(0.01) == grave.epsilon(0.01) > mild.epsilon(0.01)
        np.testing.assert_array_equal(losses.delta(eps), grave.delta(eps))


def test_losses_that_are_all_but_certain() -> None:
    """Noise that hides nothing: without the example every loss is -log(1 - q), and delta is 1 - (1 - q) e^eps."""
    found = privacy_loss((Mechanism(L2(dim=9), Gaussian(0.03), rate=0.1, steps=1),)).added
    eps = np.array([0.0, 0.03, 0.0731, 0.1, 0.105])
    above = found.delta(eps) - (1 - 0.9 * np.exp(eps))
    assert np.all((above > -1e-12) & (above < 1e-6))
    assert len(found.probs) < 3_000_000, "and the lattice is no longer than that takes"


def test_dp_accounting_reads_the_same_off_the_same_losses() -> None:
    for mechanism in (
        Mechanism(Ranked(dim=40), StudentT(3, 0.8), 0.02, 300),
        Mechanism(L2(dim=9), Gaussian(2.0), 1.0, 3),
    ):
        losses = privacy_loss((mechanism,))
        theirs = losses.to_dp_accounting()
        for delta in (1e-3, 1e-5, 1e-8):
            assert losses.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-9)
        eps = np.linspace(0, 3, 9)
        np.testing.assert_allclose(losses.delta(eps), theirs.get_delta_for_epsilon(eps), rtol=1e-9, atol=1e-13)


def test_sampled_reach() -> None:
    assert sampled_reach(5.0, 1.0) == pytest.approx(5.0)
    assert sampled_reach(5.0, 0.1) == pytest.approx(np.log(0.9 + 0.1 * np.exp(5.0)))


def test_a_looser_curve_never_lowers_epsilon(planting: pytest.MonkeyPatch) -> None:
    """The pipeline is monotone: raise the one-step curve anywhere and delta rises everywhere."""
    run = (Mechanism(Ranked(dim=1), StudentT(3, 0.8), 0.2, 6),)
    eps = np.linspace(0, 3, 30)
    before = privacy_loss(run).delta(eps)
    exact = step_curve(run[0].encoder, run[0].noise)
    raised = Curve(lambda e: np.minimum(1.02 * exact.forward(e), 1.0), exact.reach, exact.basis)
    planting.setattr(pld, "step_curve", lambda *_: raised)
    privacy_loss.cache_clear()
    assert np.all(privacy_loss(run).delta(eps) > before)


@pytest.mark.parametrize("noise", [Sech(1.0), Logistic(0.6)], ids=repr)
def test_high_dimensions_see_the_fisher_information_alone(noise: Noise) -> None:
    """An explanation and no bound: in 20,000 dimensions any law costs what a Gaussian of deviation I^(-1/2) does."""
    found = epsilon((Mechanism(Ranked(dim=20_000), noise, 0.01, 500),), DELTA)
    alike = Gaussian(noise.fisher_information**-0.5)
    assert found == pytest.approx(epsilon((Mechanism(L2(dim=1), alike, 0.01, 500),), DELTA), rel=0.01)


@pytest.mark.parametrize(
    "encoder", [Ranked(dim=30, profiles=Blocks(dims=(10, 20), profiles=Tails(levels=4)))], ids=repr
)
def test_blocks_are_free(encoder: Encoder) -> None:
    """Shares of one squared norm: near the price of a single profile."""
    noise = StudentT(9, 1.0)
    single = epsilon((Mechanism(Ranked(dim=30, profiles=Tails(levels=4)), noise, 0.1, 10),), DELTA)
    assert epsilon((Mechanism(encoder, noise, 0.1, 10),), DELTA) == pytest.approx(single, rel=0.05)


def _laplace_delta(eps: float, steps: int, order: float) -> float:
    """H_{e^eps} of `steps` releases of one number with Laplace noise of scale 1 by an inverse Laplace transform.

    A step's loss is 1 with a chance of 1/2, -1 with 1/(2e), and has the density e^((x - 1)/2) / 4 in between.
    """
    t = np.linspace(-60, 60, 120_001)
    z = order + 1j * t
    one = np.exp(z) / 2 + np.exp(-1 - z) / 2 + np.exp(-0.5) * np.sinh(z + 0.5) / (2 * (z + 0.5))
    real = (np.exp(steps * np.log(one) - eps * z) / (z * (z + 1))).real
    return float(np.trapezoid(real, t)) / (2 * math.pi)


def test_a_hundred_laplace_releases_at_a_small_delta() -> None:
    """It used to be refused: errors of a transform came to more than 1e-10."""
    found = guarantee(Mechanism(Ranked(dim=1), Laplace(1.0), 1.0, 100), 1e-10)
    assert found.kind == "bound"
    assert found.epsilon - found.arithmetic_epsilon == pytest.approx(81.57, abs=0.01)
    assert _laplace_delta(found.epsilon, 100, order=1.0) <= 1e-10
    assert _laplace_delta(found.epsilon - 0.01, 100, order=1.0) > 1e-10
    assert _laplace_delta(found.epsilon, 100, order=0.8) == pytest.approx(
        _laplace_delta(found.epsilon, 100, order=1.0), rel=1e-4
    )
