"""What it costs to cut batches: the chance is exact, it is paid by every accountant, and the bound is one."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import stats
from scipy.optimize import brentq

from noisette import L2, Gaussian, Laplace, Mechanism, Poisson, Ranked, calibrate, guarantee, tradeoff
from noisette.account import Ledger, accountants, guarantees, read_ledger
from noisette.account.cut import chance_of_a_cut, cut_chance, largest_batch
from noisette.account.pld import privacy_loss
from noisette.account.rdp import renyi
from noisette.errors import LedgerError, Unaccountable
from tests.helpers import refused

DELTA = 1e-5
N, RATE, STEPS = 60000, 256 / 60000, 2000


def cut(most: int, units: int = N, rate: float = RATE, steps: int = STEPS, scale: float = 0.9) -> Mechanism:
    return Mechanism(L2(dim=9), Gaussian(scale), sampling=Poisson(rate, most, units), steps=steps)


def plain(mechanism: Mechanism) -> Mechanism:
    return Mechanism(mechanism.encoder, mechanism.noise, mechanism.rate, mechanism.steps)


@pytest.mark.parametrize(("units", "rate", "most"), [(5, 0.3, 2), (12, 0.5, 12), (12, 0.5, 1), (40, 0.05, 9)])
def test_the_chance_is_that_of_one_unit_more(units: int, rate: float, most: int) -> None:
    """Against exact fractions. The data set with the larger tail is the neighbour with one unit more."""
    q, n = Fraction(rate), units + 1
    exact = sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(most + 1, n + 1))
    found = cut_chance(Poisson(rate, most, units))
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**8))


@pytest.mark.parametrize(
    ("units", "rate", "most"),
    [(N, RATE, 300), (N, RATE, 377), (N, RATE, 900), (10**7, 1e-4, 1200), (3000, 0.9, 2800), (10**9, 1e-6, 1200)],
)
def test_the_chance_far_out(units: int, rate: float, most: int) -> None:
    """Against mpmath at 40 digits, by the terms themselves, down to 1e-200."""
    with mpmath.workdps(40):
        n, q = units + 1, mpmath.mpf(rate)
        log = mpmath.loggamma
        terms = (
            mpmath.exp(log(n + 1) - log(k + 1) - log(n - k + 1) + k * mpmath.log(q) + (n - k) * mpmath.log1p(-q))
            for k in range(most + 1, min(n, most + 600) + 1)
        )
        exact, found = mpmath.fsum(terms), cut_chance(Poisson(rate, most, units))
        assert exact * (1 - mpmath.mpf(10) ** -20) <= found <= exact * (1 + mpmath.mpf(10) ** -8)


def test_what_floats_cannot_tell_is_not_nothing() -> None:
    assert cut_chance(Poisson(1e-9, 10**5, 10**6)) == 1e-300
    assert cut_chance(Poisson(1.0, 60, 60)) == 1.0
    assert cut_chance(Poisson(1.0, 61, 60)) == 0.0
    assert cut_chance(Poisson(0.5)) == 0.0


@pytest.mark.parametrize("name", accountants())
@pytest.mark.parametrize("most", [360, 377, 420])
def test_every_accountant_pays_for_the_cut(name: str, most: int) -> None:
    """What is claimed holds by hand: scipy's tail, and what the accountant needs for the rest, are within delta."""
    mechanism = cut(most)
    claimed = guarantee(mechanism, DELTA, name).epsilon
    spent = STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(claimed))
    assert 0 < spent < DELTA
    # floats are paid for once, whichever way around
    assert guarantee(plain(mechanism), DELTA - spent, name).epsilon <= claimed * (1 + 1e-6)
    assert claimed > guarantee(plain(mechanism), DELTA, name).epsilon * (1 - 1e-9)
    slack = 0.999 * claimed
    spent = STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(slack))
    assert guarantee(plain(mechanism), DELTA - spent, name).epsilon > slack, "and no smaller epsilon would do"


def test_whatever_the_noise() -> None:
    mechanism = Mechanism(Ranked(dim=50), Laplace(0.4), sampling=Poisson(RATE, 377, N), steps=200)
    assert 1 < guarantee(mechanism, DELTA).epsilon / guarantee(plain(mechanism), DELTA).epsilon < 1.005


def _truth(mechanism: Mechanism) -> float:
    """dp_accounting's own analysis of a cut Gaussian step, which is tight."""
    account = pld.PLDAccountant()
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        dataset_size=mechanism.sampling.units,
        sampling_probability=mechanism.rate,
        truncated_batch_size=mechanism.sampling.most,
        noise_multiplier=mechanism.noise.scale,
    )
    account.compose(event, mechanism.steps)
    return float(account.get_epsilon(DELTA))


@pytest.mark.parametrize(
    ("most", "units", "rate"), [(377, N, RATE), pytest.param(350, N, RATE, marks=pytest.mark.slow), (28, 50, 0.1)]
)
def test_never_below_the_truth_for_gaussian_noise(most: int, units: int, rate: float) -> None:
    """Where the cut is rare ours is within a thousandth of it; where it is not, theirs is tighter."""
    mechanism = cut(most, units, rate, steps=200, scale=1.0)
    ours, theirs = guarantee(mechanism, DELTA).epsilon, _truth(mechanism)
    assert theirs * (1 - 1e-4) <= ours, "both discretise losses"
    if cut_chance(mechanism.sampling) < 1e-9:
        assert ours <= 1.001 * theirs


def test_batches_that_are_cut_all_the_time_have_no_epsilon_here() -> None:
    """Half of ten, cut at five: dp_accounting still has a number, and it is well above that of uncut batches."""
    mechanism = cut(5, units=10, rate=0.5, steps=1, scale=3.0)
    assert _truth(mechanism) > 1.1 * guarantee(plain(mechanism), DELTA).epsilon
    with refused(Unaccountable, "no finite epsilon"):
        guarantee(mechanism, DELTA)


def test_several_mechanisms_and_several_lengths() -> None:
    parts = cut(377, steps=70), cut(370, steps=90), plain(cut(377, steps=40))
    chance = 70 * cut_chance(parts[0].sampling) + 90 * cut_chance(parts[1].sampling)
    assert chance_of_a_cut(parts) == pytest.approx(chance, rel=1e-12)
    claimed = guarantee(parts, DELTA).epsilon
    left = DELTA - chance * (1 + math.exp(claimed))
    assert guarantee(tuple(map(plain, parts)), left).epsilon <= claimed
    mechanism = cut(360)
    for steps, promise in guarantees(mechanism, [200, 600], DELTA).items():
        one = guarantee(mechanism.replace(steps=steps), DELTA)
        assert promise.epsilon == pytest.approx(one.epsilon, rel=1e-6)
        assert promise.mechanism_hash == one.mechanism_hash


def test_the_curve_pays_as_well() -> None:
    mechanism = cut(360)
    with_cut, without = tradeoff(mechanism), tradeoff(plain(mechanism))
    extra = chance_of_a_cut((mechanism,)) * (1 + np.exp(with_cut.epsilons))
    paid = np.minimum.accumulate(np.minimum(1.0, without.deltas + extra))
    np.testing.assert_allclose(with_cut.deltas, paid, rtol=1e-6)


def test_nobody_gets_past_it() -> None:
    """The losses of an accountant do not hold the cut, so they are not to be had for cut batches."""
    for question in (privacy_loss, renyi):
        with refused(Unaccountable, "ask guarantee"):
            question((cut(377),))
    assert not any(accountant.supports(cut(377)) for accountant in accountants().values())


def test_calibration_pays_for_it() -> None:
    found = calibrate(cut(350, steps=100).replace(noise=Gaussian()), 0.5, DELTA)
    assert 0.499 < guarantee(found, DELTA).epsilon <= 0.5 < guarantee(found, 0.9 * DELTA).epsilon
    assert guarantee(plain(found), DELTA).epsilon < 0.499


SLOW = pytest.mark.slow


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(3.0, marks=SLOW), pytest.param(8.0, marks=SLOW)])
def test_the_proposed_size_costs_a_hundredth_and_no_unit_less(epsilon: float) -> None:
    """And epsilon is within 0.5% of that of unbounded batches."""
    most = largest_batch(RATE, N, STEPS, epsilon, 0.01 * DELTA)

    def cost(most: int) -> float:
        return STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(epsilon))

    assert cost(most) <= 0.01 * DELTA < cost(most - 1)
    mechanism = calibrate(plain(cut(377)), epsilon, DELTA).replace(sampling=Poisson(RATE, most, N))
    assert 1 <= guarantee(mechanism, DELTA).epsilon / guarantee(plain(mechanism), DELTA).epsilon < 1.005


def test_ledgers_of_units_and_of_examples_do_not_mix(tmp_path: Path) -> None:
    of_examples = Mechanism(L2(dim=9), Gaussian(1.0), 0.1, 5)
    of_units = of_examples.replace(sampling=Poisson(0.1, of="unit"))
    for first, other in ((of_examples, of_units), (of_units, of_examples)):
        path = tmp_path / f"{first.sampling.of}.jsonl"
        with Ledger(path, data="demo") as ledger:
            ledger.spend(first, 2)
            with refused(LedgerError, "do not add up"):
                ledger.spend(other)
            ledger.spend(first, 1)
        promise = read_ledger(path).guarantee(1e-3)
        assert promise.epsilon == guarantee(first.replace(steps=3), 1e-3).epsilon
        assert first.sampling.of in promise.adjacency


def test_a_ledger_pays_for_the_cut(tmp_path: Path) -> None:
    mechanism = cut(360)
    with Ledger(tmp_path / "l.jsonl", data="demo") as ledger:
        ledger.spend(mechanism, STEPS)
        assert ledger.guarantee(DELTA).epsilon == guarantee(mechanism, DELTA).epsilon


def test_what_other_batches_cost_is_on_the_page() -> None:
    """Without replacement, by dp_accounting, where replacing an example moves a sum by twice the clip; and shuffled
    passes, by the closed form of sixty Gaussian releases."""
    account = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    release = dp_accounting.GaussianDpEvent(1.1 / 2)
    account.compose(dp_accounting.SampledWithoutReplacementDpEvent(60_000, 256, release), 14_062)
    mu = math.sqrt(60) / 1.1
    shuffled = brentq(
        lambda e: stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu) - DELTA, 1, 99
    )
    page = (Path(__file__).parents[2] / "docs" / "guides" / "units.md").read_text()
    assert f"| a fixed size, drawn anew every step | {account.get_epsilon(DELTA):.1f} |" in page
    assert f"| shuffled passes | {shuffled:.2f} |" in page
