"""The attacker's statistic is the likelihood ratio, and its simulated law is the true one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette import Generator, Noise
from noisette.audit._likelihood_ratio import Statistic
from noisette.noise import Gaussian, Laplace
from tests.support.audited_mechanisms import LAWS, NAMES

SHIFT = np.random.default_rng(5).standard_normal(40)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_scores_are_log_likelihood_ratios(law: Noise) -> None:
    judge, scaled = Statistic(law), law.replace(scale=0.7)
    rows = 0.7 * np.random.default_rng(7).standard_normal((50, 40))
    for size in (0.01, 1.0, 30.0):
        shift = size * SHIFT
        expected = (scaled.log_prob(rows - shift) - scaled.log_prob(rows)).sum(axis=1)
        np.testing.assert_allclose(judge.scores(rows, shift, 0.7), expected, rtol=2e-4, atol=1e-4 * size)


@pytest.mark.parametrize("dim", [1, 40, 3000])
def test_the_simulated_law_of_a_gaussian(dim: int) -> None:
    """Normal, with a mean of half its variance, below or above zero; five standard errors at the outer quantiles."""
    shift = np.random.default_rng(8).standard_normal(dim)
    shift *= 3 / np.linalg.norm(shift)
    absent, present = Statistic(Gaussian()).simulated(2 * shift, 2.0, 1.0, Generator(1))
    for scores, mean in ((absent, -4.5), (present, 4.5)):
        at = np.quantile(scores, [0.01, 0.1, 0.5, 0.9, 0.99])
        np.testing.assert_allclose(at, stats.norm(mean, 3).ppf([0.01, 0.1, 0.5, 0.9, 0.99]), atol=0.9)


def test_the_simulated_law_at_a_rate() -> None:
    """Against draws by numpy, with the exact likelihood ratio; a two-sample test at level 1e-6."""
    law, shift, rng = Laplace(1.0), 0.5 * SHIFT, np.random.default_rng(6)
    absent, mixed = Statistic(law).simulated(shift, 1.0, 0.3, Generator(2))
    draws = rng.laplace(size=(4000, 40))
    takes_part = rng.random(4000)[:, None] < 0.3
    for scores, rows in ((absent, draws), (mixed, draws + takes_part * shift)):
        expected = (law.log_prob(rows - shift) - law.log_prob(rows)).sum(axis=1)
        assert stats.ks_2samp(scores, expected).pvalue > 1e-6
    assert stats.ks_2samp(mixed, absent).pvalue < 1e-6


def test_what_is_not_finite_scores_as_nothing() -> None:
    rows = np.zeros((4, 40))
    rows[1, 3], rows[2, 5] = np.nan, np.inf
    assert np.isnan(Statistic(Gaussian()).scores(rows, SHIFT, 1.0)).tolist() == [False, True, True, False]
