"""Laws of how many runs a search makes."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from noisette._spec import parse
from noisette.accounting.num_trials import (
    GeometricNumTrials,
    LogarithmicNumTrials,
    NumTrials,
    PoissonNumTrials,
    num_trials_from_name,
)
from noisette.errors import InvalidInput
from noisette.random import Generator
from tests.unit.accounting.test_best_of_price import LAWS, chances


@pytest.mark.parametrize("trials", [GeometricNumTrials(4), LogarithmicNumTrials(4), PoissonNumTrials(4)])
def test_draws_follow_the_law(trials: NumTrials) -> None:
    """Chi-square at a level of one in a million, 20,000 draws."""
    generator = Generator(seed=11)
    drawn = np.bincount([min(trials.draw(generator), 25) for _ in range(20_000)], minlength=26)
    expected = 20_000 * np.append(chances(trials)[:25], chances(trials)[25:].sum())
    used = expected > 5
    assert not drawn[expected == 0].any()
    statistic = ((drawn - expected)[used] ** 2 / expected[used]).sum()
    assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-6


class Told(Generator):
    """Uniforms as they are given, in order."""

    def __init__(self, *given: float) -> None:
        super().__init__(seed=0)
        self._given = list(given)

    def uniforms(self, n: int) -> np.ndarray:
        return np.array([self._given.pop(0) for _ in range(n)])


def end(above: Callable[[float], bool]) -> float:
    """The least float in (0, 1] that is `above`, as all larger ones are."""
    low, high = 0, int(np.float64(1.0).view(np.int64))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if above(float(np.int64(middle).view(np.float64))) else (middle, high)
    return float(np.int64(high).view(np.float64))


def missed(drawn: Callable[[float], int], chance: mp.mpf) -> float:
    """For about which part of [0, 1] another number is `drawn` than the geometric one, with this `chance` of more."""
    ends = np.unique(np.geomspace(1, 15 / float(1 - chance) + 2, 25).round().astype(int)).tolist()
    wrong = [float(abs(end(lambda u, k=k: drawn(u) <= k) - chance**k)) for k in ends]  # type: ignore[misc]
    return float(np.interp(range(1, ends[-1] + 1), ends, wrong).sum())


@pytest.mark.parametrize("mean", [1.001, 1.5, 20.0, 3000.0])
def test_numbers_of_runs_are_drawn_as_rightly_as_stated(mean: float) -> None:
    """Where one number gives way to the next, found by halving, beside mpmath at 50 digits."""
    geometric, logarithmic = GeometricNumTrials(mean), LogarithmicNumTrials(mean)
    with mp.workdps(50):
        found = missed(lambda u: geometric.draw(Told(u)), 1 - 1 / mp.mpf(mean))
        assert 0 < found < geometric.error
        for first in (1e-9, 0.01, 0.4, 0.9, 1.0):
            chance = -mp.expm1(-mp.mpf(logarithmic._log) * mp.mpf(first))
            found = missed(lambda u, v=first: logarithmic.draw(Told(v, u)), chance)  # type: ignore[misc]
            assert found < logarithmic.error / mean / (1 - chance)  # whose mean is `error`
        poisson, rng = PoissonNumTrials(min(mean, 300.0)), np.random.default_rng(3)
        for _ in range(5):
            before = rng.random(4 * math.ceil(mean) + 40)
            sums = np.cumsum(-np.log(before))
            count = int(np.searchsorted(sums, poisson.mean))
            others = before[:count].tolist()
            last = end(lambda u: poisson.draw(Told(*others, u, 1e-300)) > len(others))  # noqa: B023
            ideal = -poisson.mean - mp.fsum(mp.log(mp.mpf(one)) for one in others)
            assert abs(mp.log(mp.mpf(last)) - ideal) < poisson.error


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [1.0, 1.5, 4.0, 20.0])
def test_hardly_ever_more(law: type[NumTrials], mean: float) -> None:
    trials = law(mean)
    known = chances(trials)
    for chance in (1e-3, 1e-9):
        most = trials.quantile_bound(chance)
        assert known[most + 1 :].sum() <= chance * (1 + 1e-6)
        assert most < 10 or known[most // 3 :].sum() > chance, "hardly larger than need be"


def test_a_mean_of_one() -> None:
    generator = Generator(seed=1)
    for trials in (GeometricNumTrials(1), LogarithmicNumTrials(1)):
        assert {trials.draw(generator) for _ in range(50)} == {1}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [0, 0.5, 10**6, float("nan"), True, "3"])
def test_bad_means(law: type[NumTrials], mean: object) -> None:
    with pytest.raises(InvalidInput, match="trials is"):
        law(mean)  # type: ignore[arg-type]


def test_texts() -> None:
    for law in LAWS:
        assert parse(repr(law(7)), NumTrials) == law(7)
    with pytest.raises(InvalidInput, match="law is 'fixed', not known"):
        num_trials_from_name("fixed", 10)
