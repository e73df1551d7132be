"""P8 at the ends: whole mechanisms over many orders of magnitude are above an independent lower bound, or refused."""

from __future__ import annotations

import re

import mpmath as mp
import numpy as np
import pytest

from noisette import Mechanism, Noise
from noisette.accounting import calibrate, guarantee
from noisette.accounting._pmf import Pmf
from noisette.accounting._renyi_moments import log_moments
from noisette.accounting.composition import compose
from noisette.app.commands import app
from noisette.encoders import L2, Ranked
from noisette.errors import NoisetteError, Unaccountable
from noisette.noise import Cauchy, Gaussian, Laplace, ScipyNoise, StudentT
from tests.support.accounting_references import exact_log_moment
from tests.support.extreme_noise import BELOW, exact, random_law, spread
from tests.support.helpers import refused


def epsilon_fault(number: int) -> str:
    """One coordinate, one step: the delta that its epsilon truly has must be at most the delta that was asked for."""
    rng = np.random.default_rng([17, number])
    noise = random_law(rng).replace(scale=spread(rng, 1e-4, 1e3))
    rate, delta = float(rng.choice([1.0, 0.1, 1e-4])), spread(rng, 1e-8, 1e-2)
    try:
        eps = guarantee(Mechanism(Ranked(dim=1), noise, rate, 1), delta).epsilon
    except NoisetteError:
        return ""
    inner = float(mp.log(1 + mp.expm1(eps) / rate))
    truth = rate * exact(noise.replace(scale=1.0), inner, 1 / noise.known_scale)
    return "" if truth <= delta * (1 + BELOW) else f"{number}: {noise} {rate=} {delta=} {eps=}: {mp.nstr(truth, 8)}"


@pytest.mark.parametrize("tens", [0, *(pytest.param(tens, marks=pytest.mark.slow) for tens in range(1, 33))])
def test_epsilon_is_never_below_the_truth(tens: int) -> None:
    assert [fault for number in range(10 * tens, 10 * tens + 10) if (fault := epsilon_fault(number))] == []


@pytest.mark.parametrize("tau", [1e-12, 1e-6, 1e3, 1e5])
def test_moments_far_out(tau: float) -> None:
    """By quadrature against Cauchy's closed form: the mass near tau was lost between panels at 1e5."""
    orders = np.array([2, 3, 9, 64])
    found, closed = (log_moments(noise, orders, tau) for noise in (StudentT(1, 1.0), Cauchy(1.0)))
    assert np.all(found >= closed * (1 - 1e-12))
    np.testing.assert_allclose(found, closed, rtol=2e-3 if tau < 1e-9 else 1e-6)


@pytest.mark.parametrize("order", [2, 9])
def test_moments_of_many_degrees_of_freedom(order: int) -> None:
    """Two gammas of a million cancel: at 1e16 degrees of freedom, once, to less than half of the truth."""
    noise = StudentT(1e6, 1.0)
    found, truth = float(log_moments(noise, [order], 1.0)[0]), exact_log_moment(noise, order, 1.0)
    assert truth <= found <= truth * (1 + 1e-6)


@pytest.mark.parametrize("dim", [1, 2, 10, 20, 1000])
def test_scipys_laplace_is_laplace(dim: int) -> None:
    laws = (Laplace(1.0), ScipyNoise("laplace", scale=1.0))
    ours, theirs = (guarantee(Mechanism(Ranked(dim=dim), noise, 1.0, 1), 1e-5) for noise in laws)
    assert theirs.epsilon == pytest.approx(ours.epsilon, rel=1e-5)
    assert theirs.kind == "bound"


@pytest.mark.parametrize(
    ("law", "same", "dim"),
    [
        (ScipyNoise("jf_skew_t", 4, 4, scale=0.5), StudentT(8, 0.5), 1),
        (ScipyNoise("nct", 5, 0.0, scale=1.0), StudentT(5, 1.0), 2),
    ],
    ids=repr,
)
def test_scipy_laws_that_are_undefined_far_out(law: Noise, same: Noise, dim: int) -> None:
    found, truth = (guarantee(Mechanism(Ranked(dim=dim), noise, 1.0, 1), 1e-5).epsilon for noise in (law, same))
    assert found == pytest.approx(truth, rel=1e-4)


@pytest.mark.parametrize("dim", [2, 20])
def test_scipys_hypsecant_has_an_epsilon(dim: int) -> None:
    assert 0.5 < guarantee(Mechanism(Ranked(dim=dim), ScipyNoise("hypsecant", scale=1.0), 1.0, 1), 1e-5).epsilon < 3


@pytest.mark.parametrize("steps", [10**4, pytest.param(10**6, marks=pytest.mark.slow)])
def test_ten_million_coordinates_and_many_steps(steps: int) -> None:
    """Rounding between the two losses of a Laplace law added up until memory ended. With many coordinates: 4.377."""
    found = guarantee(Mechanism(Ranked(dim=10**7), Laplace(steps**0.5), 1.0, steps), 1e-5).epsilon
    assert 4.37 < found < 4.42


def test_more_than_memory_holds_is_refused() -> None:
    wide = Pmf(1e-9, 0, np.full(2**21, 2.0**-21), 0.0)
    with refused(Unaccountable, "memory"):
        next(compose([wide], np.array([[100_000]])))


def test_a_lattice_that_is_no_number_is_refused() -> None:
    for probs, infinity in ((np.array([np.nan]), 0.0), (np.ones(1), np.nan), (np.array([np.inf]), 0.0)):
        with refused(Unaccountable, "undefined"):
            Pmf(0.1, 0, probs, infinity)


def test_calibration_stays_where_the_law_is_accurate() -> None:
    plan = Mechanism(Ranked(dim=1), Cauchy(), 1.0, 1)
    with refused(Unaccountable, "jumps"):
        calibrate(plan, 37.95, 1e-5)
    found = calibrate(plan, 27.0, 1e-5)
    with mp.workdps(30):
        assert exact(Cauchy(1.0), 27.0, 1 / found.noise.known_scale) <= 1e-5


ISSUE = [
    ("Ranked(dim=10, radius=1e200)", "StudentT(df=3, scale=1.0)", "hides nothing"),
    ("L2(dim=10, radius=1.7e308)", "Gaussian(scale=0.5)", "hides nothing"),
    ("Ranked(dim=10)", "Laplace(scale=1e-309)", "scale is 1e-309"),
    ("Ranked(dim=1)", "GeneralizedGaussian(shape=1000, scale=1/1.4)", "shape is 1000"),
    ("Ranked(dim=1)", "Cauchy(scale=1e-9)", "hides nothing"),
    ("Ranked(dim=1)", "StudentT(df=1e16, scale=1.0)", "df is 1e+16"),
]


@pytest.mark.parametrize(("encoder", "noise", "words"), ISSUE)
def test_the_command_line_refuses_without_warnings(
    encoder: str, noise: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Warnings are errors here, and nothing at all reaches standard error."""
    mechanism = ["--encoder", encoder, "--noise", noise, "--rate", "0.01", "--steps", "1000"]
    with refused(match=re.escape(words)):
        app(["account", *mechanism], standalone_mode=False)
    assert capfd.readouterr().err == ""


def test_as_many_steps_as_there_can_be_have_an_answer_or_none() -> None:
    mechanism = Mechanism(L2(dim=1), Gaussian(scale=1e7), rate=1.0, steps=10**15)
    with refused(Unaccountable, match="no lattice"):
        guarantee(mechanism, 1e-3)
