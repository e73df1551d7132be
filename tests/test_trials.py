"""Laws of how many runs a search makes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.spec import parse
from noisette.trials import GeometricTrials, LogarithmicTrials, PoissonTrials, Trials, trials_of
from tests.account.test_selection import LAWS, chances


@pytest.mark.parametrize("trials", [GeometricTrials(4), LogarithmicTrials(4), PoissonTrials(4)])
def test_draws_follow_the_law(trials: Trials) -> None:
    """Chi-square at a level of one in a million, 20,000 draws."""
    generator = Generator(seed=11)
    drawn = np.bincount([min(trials.draw(generator), 25) for _ in range(20_000)], minlength=26)
    expected = 20_000 * np.append(chances(trials)[:25], chances(trials)[25:].sum())
    used = expected > 5
    assert not drawn[expected == 0].any()
    statistic = ((drawn - expected)[used] ** 2 / expected[used]).sum()
    assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-6


def test_a_mean_of_one() -> None:
    generator = Generator(seed=1)
    for trials in (GeometricTrials(1), LogarithmicTrials(1)):
        assert {trials.draw(generator) for _ in range(50)} == {1}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [0, 0.5, 10**6, float("nan"), True, "3"])
def test_bad_means(law: type[Trials], mean: object) -> None:
    with pytest.raises(InvalidInput, match="trials is"):
        law(mean)  # type: ignore[arg-type]


def test_texts() -> None:
    for law in LAWS:
        assert parse(repr(law(7)), Trials) == law(7)
    with pytest.raises(InvalidInput, match="law is 'fixed', not known"):
        trials_of("fixed", 10)
