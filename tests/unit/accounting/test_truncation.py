"""What it costs to cut batches: the chances are exact, they are paid by every accountant, and the bound is one."""

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

from noisette import Mechanism, Poisson, calibrate, guarantee, tradeoff
from noisette.accounting import Ledger, accountants, guarantees, read_ledger
from noisette.accounting._corrections import Correction, epsilon_after_correction
from noisette.accounting._truncation import (
    exchanges,
    min_max_batch,
    step_truncation_probability,
    truncation_probability,
)
from noisette.accounting.pld import privacy_loss
from noisette.accounting.rdp import renyi
from noisette.encoders import L2, Ranked
from noisette.errors import LedgerError, Unaccountable
from noisette.noise import Gaussian, Laplace
from tests.support.helpers import refused

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
    found = step_truncation_probability(Poisson(rate, most, units))
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
        exact, found = mpmath.fsum(terms), step_truncation_probability(Poisson(rate, most, units))
        assert exact * (1 - mpmath.mpf(10) ** -20) <= found <= exact * (1 + mpmath.mpf(10) ** -8)


def test_what_floats_cannot_tell_is_not_nothing() -> None:
    assert step_truncation_probability(Poisson(1e-9, 10**5, 10**6)) == 1e-300
    assert step_truncation_probability(Poisson(1.0, 60, 60)) == 1.0
    assert step_truncation_probability(Poisson(1.0, 61, 60)) == 0.0
    assert step_truncation_probability(Poisson(0.5)) == 0.0


SMALL = [(5, 0.3, 2), (12, 0.5, 12), (12, 0.5, 1), (40, 0.05, 9), (9, 1.0, 4)]
FAR = [(N, RATE, 200), (N, RATE, 377), (10**7, 1e-4, 1200), (10**9, 1e-6, 900)]


@pytest.mark.parametrize(("units", "rate", "most"), SMALL)
def test_exchanges_are_those_of_every_number_of_units(units: int, rate: float, most: int) -> None:
    """Against exact fractions: for each number of others, one of the exchanges is as likely and as often, or more."""
    found, q = exchanges(Poisson(rate, most, units)), Fraction(rate)
    for n in range(most, units + 1):
        mass = {k: math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(most, n + 1)}
        chance = sum(mass.values())
        place = sum(p * q * Fraction(most, k + 1) for k, p in mass.items()) / chance
        assert any(chance <= Fraction(one.chance) and place <= Fraction(one.rate) for one in found), n
    if rate < 1:  # where all are drawn, fewer are as likely to fill a batch
        assert Fraction(found[0].chance) <= chance * (1 + Fraction(1, 10**8))
        assert Fraction(found[0].rate) <= place * Fraction(1002, 1000)


def test_nothing_is_exchanged_where_nothing_is_cut() -> None:
    assert exchanges(Poisson(0.5)) == exchanges(Poisson(0.5, max_batch=61, population=60)) == ()


@pytest.mark.parametrize(("units", "rate", "most"), FAR)
def test_exchanges_far_out(units: int, rate: float, most: int) -> None:
    """Against mpmath at 40 digits, for all units that there are."""
    with mpmath.workdps(40):
        n, q, log = units, mpmath.mpf(rate), mpmath.loggamma
        mass = [
            mpmath.exp(log(n + 1) - log(k + 1) - log(n - k + 1) + k * mpmath.log(q) + (n - k) * mpmath.log1p(-q))
            for k in range(most, min(n, most + 900) + 1)
        ]
        chance = mpmath.fsum(mass)
        place = mpmath.fsum(p * q * most / (k + 1) for k, p in enumerate(mass, most)) / chance
        one = exchanges(Poisson(rate, most, units))[0]
        assert chance * (1 - mpmath.mpf(10) ** -20) <= one.chance <= chance * (1 + mpmath.mpf(10) ** -8)
        assert place <= one.rate <= place * mpmath.mpf("1.002")


@pytest.mark.parametrize("name", accountants())
@pytest.mark.parametrize("most", [360, 377, 420])
def test_every_accountant_pays_for_the_cut(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not know of cuts pays in delta: scipy's tail, and what it needs for the rest, are within it."""
    mechanism, chosen = cut(most), accountants()[name]
    knows = guarantee(mechanism, DELTA, name).epsilon if chosen.cuts else None
    monkeypatch.setattr(type(chosen), "cuts", False)
    claimed = guarantee(mechanism, DELTA, name).epsilon
    spent = STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(claimed))
    assert 0 < spent < DELTA
    # floats are paid for once, whichever way around
    assert guarantee(plain(mechanism), DELTA - spent, name).epsilon <= claimed * (1 + 1e-6)
    assert claimed > guarantee(plain(mechanism), DELTA, name).epsilon * (1 - 1e-9)
    slack = 0.999 * claimed
    spent = STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(slack))
    assert guarantee(plain(mechanism), DELTA - spent, name).epsilon > slack, "and no smaller epsilon would do"
    if knows is not None:
        assert guarantee(plain(mechanism), DELTA, name).epsilon * (1 - 1e-5) <= knows <= claimed * (1 + 1e-5)


def test_whatever_the_noise() -> None:
    mechanism = Mechanism(Ranked(dim=50), Laplace(0.4), sampling=Poisson(RATE, 377, N), steps=200)
    assert 0.999 < guarantee(mechanism, DELTA).epsilon / guarantee(plain(mechanism), DELTA).epsilon < 1.005
    often = mechanism.replace(sampling=Poisson(RATE, 256, N))
    assert guarantee(often, DELTA).epsilon > 1.5 * guarantee(plain(mechanism), DELTA).epsilon


def check_one_cut_step(units: int, rate: float, most: int, scale: float, *, tight: bool) -> None:
    """The exact curves of neighbours whose units all push one way, and one more the other, by quadrature.

    Ours is not below; and where all are drawn, so that nothing tells how many were, it is the truth when one leaves.
    """
    losses = privacy_loss((cut(most, units, rate, steps=1, scale=scale),))
    eps = np.linspace(0.0, 3.0, 7)
    for n in (units, max(most, units // 2)):
        x = np.linspace(-n - 14 * scale, 14 * scale + 1, 200_001)
        without, joined = np.zeros_like(x), np.zeros_like(x)
        for k in range(n + 1):
            weight, kept = stats.binom.pmf(k, n, rate), min(k, most)
            if weight < 1e-16:
                continue
            place = rate if k < most else rate * most / (k + 1)
            moved = -kept + (1 if k < most else 2)
            without += weight * stats.norm.pdf(x, -kept, scale)
            joined += weight * ((1 - place) * stats.norm.pdf(x, -kept, scale) + place * stats.norm.pdf(x, moved, scale))
        for ours, p, q in ((losses.removed, joined, without), (losses.added, without, joined)):
            truth = np.array([np.trapezoid(np.maximum(p - math.exp(e) * q, 0.0), x) for e in eps])
            claimed = ours.delta(eps)
            assert np.all(truth <= claimed * (1 + 1e-6) + 1e-12)
            if tight and n == units and ours is losses.removed:
                np.testing.assert_allclose(claimed, truth, rtol=5e-3, atol=1e-9)


@pytest.mark.parametrize(
    ("units", "rate", "most", "scale", "tight"),
    [(10, 0.5, 5, 1.0, False), (40, 0.1, 3, 0.4, False), (30, 0.3, 9, 2.0, False), (20, 1.0, 20, 1.0, True)],
)
def test_one_cut_step_is_never_below_the_truth(units: int, rate: float, most: int, scale: float, tight: bool) -> None:
    check_one_cut_step(units, rate, most, scale, tight=tight)


def _truth(mechanism: Mechanism, larger: int | None = None) -> float:
    """dp_accounting's own analysis of cut Gaussian steps, of data sets whose larger one has as many units."""
    account = pld.PLDAccountant()
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        dataset_size=larger or mechanism.sampling.population,
        sampling_probability=mechanism.rate,
        truncated_batch_size=mechanism.sampling.max_batch,
        noise_multiplier=mechanism.noise.scale,
    )
    account.compose(event, mechanism.steps)
    return float(account.get_epsilon(DELTA))


@pytest.mark.parametrize(
    ("most", "units", "rate"), [(377, N, RATE), pytest.param(350, N, RATE, marks=pytest.mark.slow), (28, 50, 0.1)]
)
def test_as_dp_accounting_has_it_where_the_cut_is_rare(most: int, units: int, rate: float) -> None:
    mechanism = cut(most, units, rate, steps=200, scale=1.0)
    ours, theirs = guarantee(mechanism, DELTA).epsilon, _truth(mechanism)
    assert theirs * (1 - 1e-4) <= ours <= 1.001 * theirs, "both discretise losses"


@pytest.mark.parametrize(
    ("units", "rate", "most", "scale", "steps"),
    [(10, 0.5, 5, 3.0, 1), (50, 0.1, 8, 1.0, 20), (1000, 0.1, 110, 2.0, 500), (N, RATE, 300, 0.9, 50)],
)
def test_batches_that_are_often_cut(units: int, rate: float, most: int, scale: float, steps: int) -> None:
    """All were refused. Not above dp_accounting's bound for one unit more, which moves both neighbours."""
    mechanism = cut(most, units, rate, steps=steps, scale=scale)
    ours, theirs = guarantee(mechanism, DELTA).epsilon, _truth(mechanism, units + 1)
    assert guarantee(plain(mechanism), DELTA).epsilon < ours <= 1.001 * theirs


def test_a_cut_far_below_the_expected_size_costs_what_the_worst_number_of_units_does() -> None:
    """There may be fewer than `units`, which is worse here: dp_accounting has it for every number."""
    mechanism = cut(20, units=500, rate=0.1, steps=10, scale=2.0)
    theirs = max(_truth(mechanism, n) for n in (200, 240))
    assert theirs > 1.5 * _truth(mechanism, 501)
    assert guarantee(mechanism, DELTA).epsilon <= 1.05 * theirs


def test_accountants_that_do_not_know_of_cuts_say_who_does() -> None:
    mechanism = cut(5, units=10, rate=0.5, steps=1, scale=3.0)
    for name in ("rdp", "rdp-classic"):
        with refused(Unaccountable, "no finite epsilon"):
            guarantee(mechanism, DELTA, name)


def test_several_mechanisms_and_several_lengths() -> None:
    parts = cut(377, steps=70), cut(370, steps=90), plain(cut(377, steps=40))
    chance = 70 * step_truncation_probability(parts[0].sampling) + 90 * step_truncation_probability(parts[1].sampling)
    assert truncation_probability(parts) == pytest.approx(chance, rel=1e-12)
    claimed = guarantee(parts, DELTA).epsilon
    free = tuple(map(plain, parts))
    assert guarantee(free, DELTA).epsilon * (1 - 1e-4) < claimed
    assert claimed <= epsilon_after_correction(Correction(chance), DELTA, lambda left: guarantee(free, left).epsilon)
    mechanism = cut(360)
    for steps, promise in guarantees(mechanism, [200, 600], DELTA).items():
        one = guarantee(mechanism.replace(steps=steps), DELTA)
        assert promise.epsilon == pytest.approx(one.epsilon, rel=1e-6)
        assert promise.mechanism_hash == one.mechanism_hash


def test_the_curve_pays_as_well() -> None:
    """No less than without the cut, and no more than with the chance of one added."""
    mechanism = cut(330, steps=200)
    with_cut, without = tradeoff(mechanism), tradeoff(plain(mechanism))
    at = np.interp(with_cut.epsilons, without.epsilons, without.deltas)
    some = with_cut.epsilons < 0.3
    assert np.all(with_cut.deltas[some] >= at[some] * (1 - 1e-3))
    extra = truncation_probability((mechanism,)) * (1 + np.exp(with_cut.epsilons))
    assert np.all(with_cut.deltas <= at * 1.001 + extra)
    assert tradeoff(cut(270, steps=200)).advantage > 1.01 * without.advantage


def test_nobody_gets_past_it() -> None:
    """Renyi divergences do not hold the cut, so they are not to be had for cut batches; losses do."""
    with refused(Unaccountable, "ask guarantee"):
        renyi((cut(377),))
    assert [name for name, one in accountants().items() if one.supports(cut(377))] == ["pld"]
    often, never = cut(300, steps=50), plain(cut(300, steps=50))
    assert privacy_loss((often,)).epsilon(DELTA) > 1.5 * privacy_loss((never,)).epsilon(DELTA)


def test_calibration_pays_for_it() -> None:
    found = calibrate(cut(330, steps=100).replace(noise=Gaussian()), 0.5, DELTA)
    assert 0.499 < guarantee(found, DELTA).epsilon <= 0.5 < guarantee(found, 0.9 * DELTA).epsilon
    assert guarantee(plain(found), DELTA).epsilon < 0.499


SLOW = pytest.mark.slow


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(3.0, marks=SLOW), pytest.param(8.0, marks=SLOW)])
def test_the_proposed_size_costs_a_hundredth_and_no_unit_less(epsilon: float) -> None:
    """And epsilon is within 0.5% of that of unbounded batches."""
    most = min_max_batch(RATE, N, STEPS, epsilon, 0.01 * DELTA)

    def cost(most: int) -> float:
        return STEPS * float(stats.binom.sf(most, N + 1, RATE)) * (1 + math.exp(epsilon))

    assert cost(most) <= 0.01 * DELTA < cost(most - 1)
    mechanism = calibrate(plain(cut(377)), epsilon, DELTA).replace(sampling=Poisson(RATE, most, N))
    assert 1 <= guarantee(mechanism, DELTA).epsilon / guarantee(plain(mechanism), DELTA).epsilon < 1.005


def test_ledgers_of_units_and_of_examples_do_not_mix(tmp_path: Path) -> None:
    of_examples = Mechanism(L2(dim=9), Gaussian(1.0), 0.1, 5)
    of_units = of_examples.replace(sampling=Poisson(0.1, unit="unit"))
    for first, other in ((of_examples, of_units), (of_units, of_examples)):
        path = tmp_path / f"{first.sampling.unit}.jsonl"
        with Ledger(path, data="demo") as ledger:
            ledger.spend(first, 2)
            with refused(LedgerError, "do not add up"):
                ledger.spend(other)
            ledger.spend(first, 1)
        promise = read_ledger(path).guarantee(1e-3)
        assert promise.epsilon == guarantee(first.replace(steps=3), 1e-3).epsilon
        assert first.sampling.unit in promise.adjacency


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
    page = (Path(__file__).parents[3] / "docs" / "guides" / "units.md").read_text()
    assert f"| a fixed size, drawn anew every step | {account.get_epsilon(DELTA):.1f} |" in page
    assert f"| shuffled passes | {shuffled:.2f} |" in page
