"""The Renyi accountant: the paper's figures, dp_accounting's own, heterogeneous runs, both conversions."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from opacus.accountants import RDPAccountant

from noisette import Mechanism, guarantee
from noisette.accounting import rdp
from noisette.accounting._renyi_moments import log_moments
from noisette.accounting.account import epsilon
from noisette.accounting.rdp_classic import epsilon_classic
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import Empirical, HalfNormal, Tails
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT
from tests.support import accounting_checks
from tests.support.accounting_references import DELTA, PAPER_EPSILONS, RATE

FIGURE = Path(__file__).parents[4] / "shared" / "paper" / "figures" / "fixed_epochs_mnist.csv"


def test_reference_at_three_orders() -> None:
    accounting_checks.check_renyi_reference()


def test_the_paper_is_reproduced() -> None:
    accounting_checks.check_paper_figures()
    accounting_checks.check_paper_student()


def test_the_written_figures_are_those_of_the_file() -> None:
    """Where the paper's figures are at hand, the numbers in the tests are theirs."""
    if FIGURE.exists():
        with FIGURE.open() as file:
            found = [float(row["epsilon"]) for row in csv.DictReader(file) if row["series"] == "encoded_gaussian"]
        assert tuple(found) == PAPER_EPSILONS
    assert len(PAPER_EPSILONS) == 7


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.1, RATE, 14_062), (2.5, 0.01, 50), (0.7, 0.1, 100), (3, 1, 9)])
def test_against_dp_accounting(sigma: float, rate: float, steps: int) -> None:
    """P9: every order and the converted epsilon; never below. Between integers theirs is a bound, and above ours."""
    theirs = rdp_privacy_accountant.RdpAccountant(orders=rdp.ORDERS.tolist())
    event = dp_accounting.GaussianDpEvent(sigma)
    theirs.compose(dp_accounting.PoissonSampledDpEvent(rate, event) if rate < 1 else event, steps)
    run = (Mechanism(L2(dim=9), Gaussian(sigma), rate, steps),)
    whole, divergences = np.isin(rdp.ORDERS, rdp.INTEGERS), rdp.renyi(run)
    np.testing.assert_allclose(divergences[whole], np.asarray(theirs._rdp)[whole], rtol=1e-9)
    assert np.all(divergences <= np.asarray(theirs._rdp) * (1 + 1e-9))
    found, expected = epsilon(run, DELTA, "rdp"), theirs.get_epsilon(DELTA)
    assert expected * 0.995 <= found <= expected * 1.0001


@pytest.mark.parametrize(("sigma", "rate"), [(1.5, 0.05), (0.7, 0.1), (1.1, RATE), (3.0, 1.0)])
@pytest.mark.parametrize("order", [1.1, 1.5, 2.7, 10.3])
def test_orders_between_integers_against_mpmath(sigma: float, rate: float, order: float) -> None:
    """Never below the integral at 30 digits, and within parts in 10^10 of it."""
    with mp.workdps(30):
        s, q, a = mp.mpf(sigma), mp.mpf(rate), mp.mpf(order)

        def integrand(x: mp.mpf) -> mp.mpf:
            return mp.npdf(x, 0, s) * (1 - q + q * mp.exp((2 * x - 1) / (2 * s * s))) ** a

        ends = [-40 * s, -10, -3, 0, 1, 3, 6, 10, 15, 25, 60 * s]
        exact = mp.log(mp.quad(integrand, ends)) / (a - 1)
        found = rdp.renyi((Mechanism(L2(dim=9), Gaussian(sigma), rate, 1),))[order == rdp.ORDERS][0]
        assert exact <= found <= exact * (1 + mp.mpf(10) ** -10)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [
        (1.5, 0.05, 1000, 50_000**-1.1),
        (1.5, 0.05, 5000, 1e-6),
        (0.6, 0.02, 500, 1e-5),
        (3.0, 0.1, 1000, 1e-6),
        (10.0, 1.0, 100, 1e-5),
    ],
)
def test_not_above_opacus(sigma: float, rate: float, steps: int, delta: float) -> None:
    """At integers alone it was up to 7.6% above; what is left is for floats."""
    theirs = RDPAccountant()
    theirs.history = [(sigma, rate, steps)]
    expected = theirs.get_epsilon(delta)
    found = guarantee(Mechanism(L2(dim=9), Gaussian(sigma), rate, steps), delta, "rdp").epsilon
    assert expected * (1 - 1e-6) <= found <= expected * 1.0001


def test_a_chord_between_integers_is_a_bound() -> None:
    """A second coordinate that hardly moves: the quadrature is for one alone, so orders between get a chord."""
    single, several = (
        Mechanism(Ranked(dim=n, profiles=Empirical(levels, (1,) * n)), Laplace(1.2), 0.3, 1)
        for n, levels in ((1, (0.999,)), (2, (1e-9, 0.999)))
    )
    exact, chords = rdp.renyi((single,)), rdp.renyi((several,))
    between = ~np.isin(rdp.ORDERS, rdp.INTEGERS)
    assert np.all(exact[between] < chords[between])
    np.testing.assert_allclose(exact[~between], chords[~between], rtol=1e-6)
    assert np.all(np.diff(exact) > 0)


def test_one_order_by_hand() -> None:
    """The lemma as a plain sum over k, without any of the code's rearrangements."""
    noise, q, alpha = Laplace(1.3), 0.2, 6
    encoder = Ranked(dim=40, profiles=HalfNormal(levels=5))
    block = encoder.blocks[0]
    total = 0.0
    for k in range(alpha + 1):
        if k < 2:
            product = 1.0
        else:
            logs = [
                n * float(log_moments(noise, [k], level)[0])
                for level, n in zip(block.levels[0], block.counts, strict=True)
            ]
            product = math.exp(sum(logs))
        total += math.comb(alpha, k) * q**k * (1 - q) ** (alpha - k) * product
    found = rdp.renyi((Mechanism(encoder, noise, q, 1),))[alpha == rdp.ORDERS][0]
    assert found == pytest.approx(math.log(total) / (alpha - 1), rel=1e-10)


def test_without_sampling_it_is_the_plain_divergence() -> None:
    found = rdp.renyi((Mechanism(L2(dim=3), Gaussian(2.0), 1.0, 7),))
    np.testing.assert_allclose(found, 7 * rdp.ORDERS / 8, rtol=1e-12)


def test_runs_are_sums_at_every_order() -> None:
    encoder = Ranked(dim=30, profiles=HalfNormal(levels=4))
    parts = [
        Mechanism(encoder, Cauchy(1.0), 0.1, 3),
        Mechanism(L2(dim=30), Gaussian(2.0), 0.02, 40),
        Mechanism(encoder, Laplace(0.7), 1.0, 1),
    ]
    whole = rdp.renyi(tuple(parts))
    np.testing.assert_allclose(whole, sum(rdp.renyi((part,)) for part in parts), rtol=1e-14)
    np.testing.assert_allclose(rdp.renyi(tuple(reversed(parts))), whole, rtol=1e-14)
    split = (parts[0].replace(steps=1), parts[0].replace(steps=2), *parts[1:])
    np.testing.assert_allclose(rdp.renyi(split), whole, rtol=1e-14)
    # the epsilon of the sum may use one order only: it lies above each part's, and below the sum of epsilons
    single = [epsilon((part,), DELTA, "rdp") for part in parts]
    assert max(single) <= epsilon(tuple(parts), DELTA, "rdp") <= sum(single)


def test_sets_cost_their_worst_member_at_every_order() -> None:
    noise = StudentT(3, 0.4)
    tails = Tails(shapes=(2.0, 0.7, 0.3), levels=5)
    whole = rdp.renyi((Mechanism(Ranked(dim=60, profiles=tails), noise, 0.1, 5),))
    members = [
        rdp.renyi((Mechanism(Ranked(dim=60, profiles=Tails(shapes=(shape,), levels=5)), noise, 0.1, 5),))
        for shape in tails.shapes
    ]
    np.testing.assert_allclose(whole, np.max(members, axis=0), rtol=1e-12)


def test_conversions() -> None:
    divergences = rdp.renyi((Mechanism(L2(dim=9), Gaussian(1.3), 0.01, 500),))
    for delta in (1e-3, 1e-6, 1e-12):
        classic = min(d + math.log(1 / delta) / (a - 1) for d, a in zip(divergences, rdp.ORDERS.tolist(), strict=True))
        tighter = min(
            d + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
            for d, a in zip(divergences, rdp.ORDERS.tolist(), strict=True)
        )
        assert epsilon_classic(divergences, delta) == pytest.approx(classic, rel=1e-12)
        assert rdp.epsilon_tighter(divergences, delta) == pytest.approx(tighter, rel=1e-12)
        assert tighter < classic
    assert rdp.epsilon_tighter(np.zeros(len(rdp.ORDERS)), 0.5) == 0, "never below zero"


def test_orders() -> None:
    assert rdp.ORDERS[0] == 1.1
    assert rdp.ORDERS[-1] >= 256
    assert np.all(np.diff(rdp.ORDERS) > 0)


def test_divergences_grow_with_the_order() -> None:
    for noise in (Laplace(0.5), Cauchy(0.5), StudentT(3, 1.0)):
        found = rdp.renyi((Mechanism(Ranked(dim=20, profiles=HalfNormal(levels=4)), noise, 0.05, 3),))
        finite = found[np.isfinite(found)]
        assert len(finite) > 60
        assert np.all(np.diff(finite) >= -1e-12 * finite[1:])
