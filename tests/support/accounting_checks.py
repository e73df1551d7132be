"""What must hold of the accountants, as functions: the tests call them, and so do the planted faults."""

from __future__ import annotations

import numpy as np
import pytest

from noisette import Mechanism
from noisette.accounting import guarantee, rdp
from noisette.accounting._renyi_moments import log_moments
from noisette.accounting.pld import privacy_loss
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import Empirical, HalfNormal
from noisette.errors import Unaccountable
from noisette.noise import Cauchy, Gaussian, Laplace, Logistic, StudentT
from tests.support.accounting_references import (
    DELTA,
    GAUSSIAN_PLD,
    PAPER_EPSILONS,
    PAPER_SIGMAS,
    RATE,
    exact_log_moment,
    gaussian_epsilon,
    simulate,
)

MNIST = Ranked(dim=26010, profiles=HalfNormal())
ERRORS = 5.0
"""Standard errors allowed in a simulation: a level of 6e-7 for each comparison."""


def check_gaussian_reference() -> None:
    """Not more than 0.02% below dp_accounting, and at most 0.5% above; its figures are rounded to half a thousandth."""
    for sigma, expected in GAUSSIAN_PLD.items():
        found = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), RATE, 14_062), DELTA).epsilon
        assert (expected - 5e-4) * (1 - 2e-4) <= found <= (expected + 5e-4) * 1.005, sigma
    found = guarantee(Mechanism(L2(dim=9), Gaussian(1.1), RATE, 23_400), DELTA).epsilon
    assert 3.1555 * (1 - 2e-4) <= found <= 3.157 * 1.005


def check_student_reference() -> None:
    for steps, low, high in ((14_062, 2.39, 2.42), (23_400, 3.17, 3.20)):
        assert low <= guarantee(Mechanism(MNIST, StudentT(9, 1.0), RATE, steps), DELTA).epsilon <= high
    unit_variance = StudentT(9, (7 / 9) ** 0.5)
    assert 3.00 <= guarantee(Mechanism(MNIST, unit_variance, RATE, 14_062), DELTA).epsilon <= 3.03
    assert 3.98 <= guarantee(Mechanism(MNIST, unit_variance, RATE, 23_400), DELTA).epsilon <= 4.015


def check_student_three() -> None:
    """One coordinate, no sampling, one step: the largest loss of a Student-t law is known, and so is H at it."""
    noise = StudentT(3, 1.0)
    x = np.linspace(-400, 400, 4_000_001)
    p, q = np.exp(noise.log_prob(x - 1.0)), np.exp(noise.log_prob(x))
    mechanism = Mechanism(Ranked(dim=1), noise, rate=1.0, steps=1)
    for delta in (0.1, 0.01):
        eps = guarantee(mechanism, delta).epsilon
        found = float(np.maximum(p - np.exp(eps) * q, 0).sum() * (x[1] - x[0]))
        assert delta * 0.995 <= found <= delta * (1 + 1e-6)


def check_paper_figures() -> None:
    for sigma, expected in zip(PAPER_SIGMAS, PAPER_EPSILONS, strict=True):
        mechanism = Mechanism(L2(dim=26010), Gaussian(sigma), RATE, 14_062)
        assert guarantee(mechanism, DELTA, "rdp-classic").epsilon == pytest.approx(expected, rel=5e-4)


def check_paper_student() -> None:
    found = guarantee(Mechanism(MNIST, StudentT(9, 1.0), RATE, 14_062), DELTA, "rdp-classic").epsilon
    assert found == pytest.approx(3.03, abs=0.005)


def check_renyi_reference() -> None:
    found = rdp.renyi((Mechanism(L2(dim=9), Gaussian(2.5), rate=0.01, steps=50),))
    orders = rdp.ORDERS.tolist()
    for order, expected in ((5, 2.18075656e-3), (50, 2.38460375e-2), (100, 167.416308)):
        assert found[orders.index(order)] == pytest.approx(expected, rel=1e-8)


def check_few_steps() -> None:
    """Without sampling, T Gaussian steps are one Gaussian of mu = sqrt(T) / sigma."""
    for steps in (1, 2, 5):
        for sigma in (0.7, 2.0):
            found = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), 1.0, steps), DELTA).epsilon
            truth = gaussian_epsilon(steps**0.5 / sigma, DELTA)
            assert truth * (1 - 1e-9) <= found <= truth * 1.001


def check_moments(noise, order: int, tau: float) -> None:
    """Not below the truth, and above it by 1e-6 at most; infinite only where E_k is beyond what a float holds."""
    found, truth = float(log_moments(noise, [order], tau)[0]), exact_log_moment(noise, order, tau)
    assert found >= truth, (noise, order, tau)
    assert found <= truth * (1 + 1e-6) or (found == np.inf and truth > 709), (noise, order, tau)


def check_large_moment() -> None:
    check_moments(Logistic(0.2), order=12, tau=0.8)


@pytest.mark.usefixtures("pair")
def check_worst_profile_of_each_order() -> None:
    """A set costs, at every order, at least what each of its members costs alone."""
    single = [rdp.renyi((Mechanism(member, StudentT(3, 2.0), 0.1, 20),)) for member in members()]
    assert np.any(single[0] > single[1] * 1.01)
    assert np.any(single[0] < single[1] * 0.99)
    together = rdp.renyi((Mechanism(PAIR, StudentT(3, 2.0), 0.1, 20),))
    np.testing.assert_allclose(together, np.maximum(*single), rtol=1e-12)


def members() -> list[Ranked]:
    """A flat profile and a peak, of the same dimension: which one costs more hangs on the order."""
    flat = Empirical(levels=(0.04,), counts=(400,))
    peak = Empirical(levels=(0.0, 0.9), counts=(399, 1))
    return [Ranked(dim=400, profiles=flat), Ranked(dim=400, profiles=peak)]


PAIR = Ranked(dim=400, radius=0.5)
"""A stand-in whose image the `pair` fixture makes that of both members."""


def check_bad_divergence_is_refused(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """One order of a step comes out as `value`, which is negative or undefined."""
    monkeypatch.setattr(rdp, "_one_step", lambda mechanism: np.where(rdp.ORDERS == 7, value, 0.1))
    try:
        found = guarantee(Mechanism(L2(dim=9), Gaussian(1.0), 0.1, 20), DELTA, "rdp")
    except Unaccountable:
        return
    raise AssertionError(found)


def check_micro_batches() -> None:
    """One example turns one encoding into another: twice the length for Gaussian noise, more for a profile."""
    steps = {"rate": 0.1, "steps": 20}
    alone = guarantee(Mechanism(L2(dim=9), Gaussian(1.1), **steps), DELTA).epsilon
    doubled = guarantee(Mechanism(L2(dim=9, micro_batch=2), Gaussian(2.2), **steps), DELTA).epsilon
    assert doubled == pytest.approx(alone, rel=1e-9)
    peak = Empirical(levels=(0.0, 1.0), counts=(1, 1))
    both = Empirical(levels=(0.5,), counts=(2,))  # times a radius of 2: the difference (1, 1) of (0, 1) and (1, 0)
    for noise in (Laplace(1.0), Cauchy(0.01)):  # a sharp law sees two moved coordinates better than one moved twice
        widened = guarantee(Mechanism(Ranked(dim=2, profiles=peak, micro_batch=2), noise, **steps), DELTA).epsilon
        least = guarantee(Mechanism(Ranked(dim=2, profiles=both, radius=2.0), noise, **steps), DELTA).epsilon
        assert widened >= least * (1 - 1e-6)


def check_both_directions() -> None:
    check_simulation(StudentT(3, 0.5), dim=5, rate=0.3, steps=3, draws=100_000, seed=3)


def check_simulation(noise, dim: int, rate: float, steps: int, draws: int, seed: int) -> None:
    """The simulated delta is at most ours, up to `ERRORS`; ours a hundredth further on is at most 3% above it."""
    encoder = Ranked(dim=dim)
    psi = np.repeat(encoder.blocks[0].levels[0], encoder.blocks[0].counts)
    losses = simulate(noise, psi, rate, steps, draws, seed)
    ours = privacy_loss((Mechanism(encoder, noise, rate, steps),))
    for name, drawn in (("removed", losses.removal), ("added", losses.addition)):
        for eps in (0.0, 0.25, 0.5, 1.0, 2.0):
            delta, error = losses.delta(drawn, eps)
            claimed = float(getattr(ours, name).delta(eps))
            assert delta <= claimed + ERRORS * error + 1e-12, (name, eps)
            later = float(getattr(ours, name).delta(eps + 0.01))
            assert later <= delta * 1.03 + ERRORS * error + 1e-6, (name, eps)
