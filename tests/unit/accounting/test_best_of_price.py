"""The price of choosing: never below what enumeration finds, as tight as promised, and known to ledgers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from noisette import Ledger, Mechanism, Poisson, calibrate, guarantee, read_ledger, tradeoff
from noisette.accounting._best_of_price import _hull, _Profile, best_of_delta, best_of_divergence, log_ratio
from noisette.accounting._corrections import Correction, deltas_after_correction
from noisette.accounting._truncation import truncation_probability, untruncated
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import (
    GeometricNumTrials,
    LogarithmicNumTrials,
    NumTrials,
    PoissonNumTrials,
    num_trials_from_name,
)
from noisette.accounting.pld import _losses
from noisette.app.tuning.trial import best
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.errors import InvalidInput, LedgerError, Unaccountable
from noisette.noise import Gaussian, Laplace
from noisette.random import Generator

BASE = Mechanism(L2(dim=9), Gaussian(scale=2.7914644081578373), rate=4096 / 60000, steps=100)
"""Epsilon 1 at delta 1e-5."""
LAWS = [GeometricNumTrials, LogarithmicNumTrials, PoissonNumTrials]
EPSILONS = np.concatenate([np.linspace(0, 6, 61), [10.0, 20.0]])


def chances(trials: NumTrials, most: int = 4000) -> np.ndarray:
    """P(K = 0), P(K = 1), ... by scipy, which knows these laws by itself."""
    k = np.arange(most)
    if trials.mean == 1 and not isinstance(trials, PoissonNumTrials):
        return (k == 1).astype(float)  # which scipy has no logarithmic law of
    if isinstance(trials, PoissonNumTrials):
        return stats.poisson.pmf(k, trials.mean)
    if isinstance(trials, GeometricNumTrials):
        return stats.geom.pmf(k, 1 / trials.mean)
    p = math.exp(-trials._log)
    return stats.logser.pmf(k, 1 - p)


def profile(p: np.ndarray, q: np.ndarray) -> Any:
    return lambda eps: np.maximum(p[:, None] - np.exp(np.ravel(eps)) * q[:, None], 0).sum(0).reshape(np.shape(eps))


def tuned(p: np.ndarray, trials: NumTrials) -> np.ndarray:
    """The law of the best of K draws, outcomes in the order of their scores, and of there being none."""
    weights = chances(trials)
    below = np.concatenate([[0.0], np.cumsum(p)])
    values = np.array([np.polynomial.polynomial.polyval(min(x, 1.0), weights) for x in below])
    return np.append(np.diff(values), weights[0])


def random_pair(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    size = int(random.integers(2, 7))
    p, q = random.dirichlet(np.full(size, random.choice([0.2, 1.0, 5.0])), 2)
    mix = random.choice([0.0, 0.1, 0.9])  # far apart, and close
    return p, mix * p + (1 - mix) * q


def check_enumeration(pairs: int, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for number in range(pairs):
        p, q = random_pair(random)
        trials = LAWS[number % 3](float(random.choice([1.0, 2.0, 7.0, 40.0])))
        forward, opposite = profile(p, q), profile(q, p)
        exact = profile(tuned(p, trials), tuned(q, trials))(EPSILONS)
        bound = best_of_delta(trials, forward, opposite, log_ratio(trials, forward, opposite))(EPSILONS)
        assert np.all(bound >= exact - 1e-10), (number, p, q, trials)


def test_never_below_the_exact_price() -> None:
    """Small mechanisms whose every outcome is enumerated, both far apart and close, under every law."""
    check_enumeration(45)


@pytest.mark.slow
def test_never_below_the_exact_price_of_4000() -> None:
    check_enumeration(4000, seed=1)


def check_cut_runs(pairs: int, factor: float = 1.0) -> bool:
    """Whether what choosing among cut runs costs is within the bound, where a cut run does the worst that it can.

    A run that is cut gives an outcome which no other run gives, which tells its data set, and whose score beats all
    others. One run is cut with the chance `tail`; in the bound, all runs of a search with `factor` m times as much.
    """
    random, holds = np.random.default_rng(3), True
    for number in range(pairs):
        p, q = random_pair(random)
        q = p if number % 2 else q  # where all that tells them apart is the cut
        trials, tail = (
            LAWS[number % 3](float(random.choice([2.0, 7.0, 40.0]))),
            float(random.choice([1e-6, 1e-3, 0.02])),
        )
        forward, opposite = profile(p, q), profile(q, p)
        shown = profile(
            tuned(np.append((1 - tail) * p, [tail, 0.0]), trials), tuned(np.append((1 - tail) * q, [0.0, tail]), trials)
        )
        ratio = 0.0 if q is p else log_ratio(trials, forward, opposite)
        free = best_of_delta(trials, forward, opposite, ratio)(EPSILONS)
        bound = deltas_after_correction(Correction(factor * trials.mean * tail), EPSILONS, lambda _, free=free: free)
        holds &= bool(np.all(bound >= shown(EPSILONS) - 1e-10))
    return holds


def test_cut_runs_are_paid_for_as_often_as_they_are_made() -> None:
    """By the chance that any of them is cut: so many as there are on average; half of that would not be enough."""
    assert check_cut_runs(30)
    assert not check_cut_runs(30, factor=0.4)
    one = Mechanism(
        L2(dim=9), Gaussian(2.8), sampling=Poisson(4096 / 60000, max_batch=4600, population=60000), steps=100
    )
    other = one.replace(sampling=one.sampling.replace(max_batch=4560))
    chance = 100 * float(stats.binom.sf(4560, 60001, one.rate))
    found = truncation_probability((BestOf((one, other), GeometricNumTrials(10)), other))
    assert found == pytest.approx(11 * chance, rel=1e-6)
    assert untruncated((BestOf((one, other), GeometricNumTrials(10)),)) == (
        BestOf((one.replace(sampling=Poisson(one.rate)),), GeometricNumTrials(10)),
    )


def test_the_price_of_a_search_of_cut_runs() -> None:
    """More than without the cut, and the more the more often batches are cut."""
    free = BestOf((BASE,), GeometricNumTrials(10))
    cut = free.replace(runs=(BASE.replace(sampling=Poisson(BASE.rate, max_batch=4400, population=60000)),))
    claimed = guarantee(cut, 1e-5).epsilon
    assert guarantee(free, 1e-5).epsilon * (1 + 1e-5) < claimed
    often = cut.replace(runs=(BASE.replace(sampling=Poisson(BASE.rate, max_batch=4150, population=60000)),))
    assert 1.2 * claimed < guarantee(often, 1e-5).epsilon < 5 * claimed
    assert tradeoff(often).advantage > tradeoff(free).advantage


def test_an_attack_by_simulation_stays_below_the_price() -> None:
    """Searches with this very code on a mechanism of three outcomes: the best event's advantage, seen 4,000 times.

    Each of two Clopper-Pearson bounds fails once in ten thousand.
    """
    p, q, trials = np.array([0.1, 0.6, 0.3]), np.array([0.25, 0.6, 0.15]), GeometricNumTrials(5)
    generator, random = Generator(seed=5), np.random.default_rng(5)

    def wins(law: np.ndarray) -> int:
        """How often the best outcome, 2, is published."""
        found = 0
        for _ in range(4000):
            drawn = random.choice(3, size=trials.draw(generator), p=law)
            found += int(drawn[best(drawn.tolist())] == 2)
        return found

    level = 1e-4
    high, low = wins(p), wins(q)
    at_least, at_most = stats.beta.ppf(level, high, 4001 - high), stats.beta.ppf(1 - level, low + 1, 4000 - low)
    bound = best_of_delta(trials, profile(p, q), profile(q, p), log_ratio(trials, profile(p, q), profile(q, p)))
    eps = np.linspace(0, 1.5, 31)
    attack = at_least - np.exp(eps) * at_most
    assert attack[0] > 0.15, "the attack sees something"
    assert np.all(attack <= bound(eps))
    exact = profile(tuned(p, trials), tuned(q, trials))(eps)
    assert np.all(attack <= exact + 1e-12), "the simulation is of the law that is enumerated"
    assert attack[0] > exact[0] - 0.08


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [1.0, 3.0, 30.0])
def test_slopes_are_those_of_the_law(law: type[NumTrials], mean: float) -> None:
    trials, t = law(mean), np.linspace(0, 1, 11)
    weights = chances(trials)
    k = np.arange(len(weights))
    assert k @ weights == pytest.approx(mean, rel=1e-6)
    slopes = np.array([(k[1:] * weights[1:]) @ (1 - x) ** (k[1:] - 1) for x in t])
    np.testing.assert_allclose(trials.log_pgf_slope(t), np.log(slopes / mean), atol=1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_the_largest_ratio_is_bounded_and_reached(law: type[NumTrials]) -> None:
    """Against a fine grid of events of two Gaussians, whose trade-off is known in closed form."""
    trials, mu = law(20.0), 0.4
    forward = lambda e: stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)  # noqa: E731
    t = np.geomspace(1e-12, 1, 200_001)
    top = stats.norm.cdf(stats.norm.ppf(t) + mu)
    seen = float((trials.log_pgf_slope(t) - trials.log_pgf_slope(top)).max())
    assert seen <= log_ratio(trials, forward, forward) <= seen + 2e-3


def reference_price(mechanism: Mechanism, trials: NumTrials, delta: float) -> float:
    """The epsilon of a search of Gaussian runs, from dp_accounting's losses of one run and a plain grid of events."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        mechanism.noise.known_scale / mechanism.encoder.image.norm, sampling_prob=mechanism.rate,
        value_discretization_interval=2e-4,
    ).self_compose(mechanism.steps)  # fmt: skip
    sides, e, t = (one._pmf_remove, one._pmf_add), np.linspace(0, 12, 1500), np.geomspace(1e-9, 1, 1000)[:, None]
    found = []
    for forward, opposite in (sides, sides[::-1]):
        grown = np.exp(e) * t + opposite.get_delta_for_epsilon(e)
        left = 1 - np.exp(-e) * (1 - t - forward.get_delta_for_epsilon(e))
        top = np.minimum(np.minimum(grown, left).min(axis=1), 1.0)
        ratio = float((trials.log_pgf_slope(t[:, 0]) - trials.log_pgf_slope(top)).max())
        found.append(forward.get_epsilon_for_delta(delta / trials.mean) + ratio)
    return max(found)


@pytest.mark.parametrize(
    ("mean", "law", "most", "about"),
    [
        (10, "geometric", 1.62, 1.5996),
        (10, "logarithmic", 1.51, 1.4929),
        (50, "geometric", 2.00, 1.9807),
        (50, "logarithmic", 1.78, 1.7530),
        (10, "poisson", 2.16, 2.1536),
    ],
)
def test_prices(mean: int, law: str, most: float, about: float) -> None:
    found = guarantee(BestOf((BASE,), num_trials_from_name(law, mean)), 1e-5)
    assert guarantee(BASE, 1e-5).epsilon == pytest.approx(1, abs=1e-3)
    assert found.epsilon <= most
    assert found.epsilon == pytest.approx(about, abs=2e-3)
    assert found.epsilon == pytest.approx(reference_price(BASE, num_trials_from_name(law, mean), 1e-5), rel=5e-4), (
        "another price"
    )
    assert found.kind == "bound"


def test_one_run_costs_what_it_costs() -> None:
    for law in ("geometric", "logarithmic"):
        assert guarantee(BestOf((BASE,), num_trials_from_name(law, 1)), 1e-5).epsilon == pytest.approx(
            guarantee(BASE, 1e-5).epsilon, abs=1e-5
        )


@pytest.mark.parametrize(("law", "shape"), [("geometric", 1.0), ("logarithmic", 0.0)])
@pytest.mark.parametrize("scale", [BASE.noise.known_scale, 6.0])
def test_not_above_renyi_of_dp_accounting(law: str, shape: float, scale: float) -> None:
    mechanism = BASE.replace(noise=Gaussian(scale))
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(mechanism.rate, dp_accounting.GaussianDpEvent(scale)), mechanism.steps
    )
    accountant = rdp.RdpAccountant()
    accountant.compose(dp_event.RepeatAndSelectDpEvent(event, 10.0, shape))
    theirs = accountant.get_epsilon(1e-5)
    ours = guarantee(BestOf((mechanism,), num_trials_from_name(law, 10)), 1e-5).epsilon
    assert ours <= 1.01 * theirs
    assert ours > guarantee(mechanism, 1e-5).epsilon


@pytest.mark.parametrize("trials", [PoissonNumTrials(10), GeometricNumTrials(10), LogarithmicNumTrials(50)])
def test_not_above_the_simpler_bounds(trials: NumTrials) -> None:
    """m delta(0) for Poisson; (eta + 1) log(e^e + (1 - p) / p delta(e)) for the others, at the best e."""
    removed, added = _losses(BASE)
    forward, opposite = _Profile([removed]), _Profile([added])
    found = log_ratio(trials, forward, opposite)
    if isinstance(trials, PoissonNumTrials):
        assert found == pytest.approx(trials.mean * float(opposite(np.zeros(1))[0]), abs=1e-4)
        return
    e = np.linspace(0, 5, 2001)
    odds = trials.mean - 1 if isinstance(trials, GeometricNumTrials) else math.expm1(trials._log)
    power = 2 if isinstance(trials, GeometricNumTrials) else 1
    simple = power * float(np.log(np.exp(e) + odds * opposite(e)).min())
    assert 0.5 * simple < found < simple


def test_another_noise_and_a_score() -> None:
    """Several candidates cost their worst; a score from other examples costs nothing where it is the lesser."""
    ranked = Mechanism(Ranked(dim=50, profiles=HalfNormal()), Laplace(scale=8.0), rate=0.1, steps=20)
    trials = GeometricNumTrials(5)
    one, other = (guarantee(BestOf((m,), trials), 1e-5).epsilon for m in (BASE, ranked))
    both = guarantee(BestOf((BASE, ranked), trials), 1e-5).epsilon
    assert max(one, other) * (1 - 1e-5) <= both <= 1.2 * max(one, other)
    few = Ranked(dim=1, profiles=HalfNormal(levels=1))
    quiet, loud = (Mechanism(few, Laplace(scale), rate=1.0, steps=1) for scale in (100.0, 0.2))
    assert guarantee(BestOf((BASE,), trials, quiet), 1e-5).epsilon == pytest.approx(one, abs=1e-6)
    assert guarantee(BestOf((BASE,), trials, loud), 1e-5).epsilon > 5


def test_it_composes() -> None:
    """With what else was spent: more than either, and less than the sum."""
    search = BestOf((BASE,), GeometricNumTrials(10))
    alone, one = guarantee(search, 1e-5).epsilon, guarantee(BASE, 1e-5).epsilon
    together = guarantee((search, BASE), 1e-5).epsilon
    assert max(alone, one) < together < alone + one
    assert alone < guarantee((search, search), 1e-5).epsilon < 2 * alone
    assert tradeoff(search).advantage > tradeoff(BASE).advantage


def test_curves_of_a_search_are_curves() -> None:
    """Convex in e^eps, between those of two equal laws and 1, and above the bound nowhere."""
    sides, eps = best_of_divergence(GeometricNumTrials(10), [_losses(BASE)]), np.linspace(-4, 4, 801)
    for curve in (sides.removal, sides.addition):
        values = curve(eps) - np.expm1(np.minimum(eps, 0))
        slopes = np.diff(values) / np.diff(np.exp(eps))
        assert np.all(np.diff(slopes) >= -1e-9)
        assert np.all((values >= 0) & (values <= 1))
    points = _hull(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.0]))
    np.testing.assert_allclose(points, [0.5, 0.25, 0.0], err_msg="a chord below a point")


def test_calibration_is_on_the_safe_side() -> None:
    for trials in (LogarithmicNumTrials(10), PoissonNumTrials(5)):
        found = calibrate(BASE.replace(noise=Gaussian()), 1.0, 1e-5, trials=trials)
        assert 0.998 <= guarantee(BestOf((found,), trials), 1e-5).epsilon <= 1.0


def test_a_ledger_holds_searches(tmp_path: Path) -> None:
    search, path = BestOf((BASE,), LogarithmicNumTrials(10)), tmp_path / "ledger.jsonl"
    with Ledger(path, data="demo") as book:
        book.spend(search)
        book.spend(BASE, 40)
        assert (book.spent(search), book.spent(BASE)) == (1, 40)
    record = read_ledger(path)
    assert record.mechanisms() == (search, BASE.replace(steps=40))
    assert record.guarantee(1e-5) == guarantee((search, BASE.replace(steps=40)), 1e-5)
    with Ledger(path) as book:
        book.spend(search)
    assert read_ledger(path).mechanisms().count(search) == 2
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][: len(lines[2]) // 2])  # the payment for the search, cut short
    assert read_ledger(path).mechanisms() == (search,)
    path.write_bytes(b"".join(lines).replace(b"mean=10.0", b"mean=11.0"))
    with pytest.raises(LedgerError):
        read_ledger(path)


def test_refused() -> None:
    search = BestOf((BASE,), GeometricNumTrials(10))
    with pytest.raises(Unaccountable, match="rdp does not know"):
        guarantee(search, 1e-5, "rdp")
    for wrong in ({"runs": ()}, {"runs": (3,)}, {"trials": 3}, {"score": 3}, {"runs": (BASE.replace(steps=0),)}):
        with pytest.raises(InvalidInput):
            search.replace(**wrong)
    with pytest.raises(InvalidInput):
        search.replace(runs=(BASE.replace(noise=Gaussian()),))
