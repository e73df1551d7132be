"""The statistics of the audit, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette.audit._intervals import ks_p_value, upper_bound
from noisette.noise import StudentT


@pytest.mark.parametrize(("count", "trials"), [(0, 50), (1, 50), (17, 2000), (1999, 2000), (2000, 2000)])
@pytest.mark.parametrize("level", [0.05, 1e-6])
def test_the_bound_is_that_of_scipy(count: int, trials: int, level: float) -> None:
    expected = stats.binomtest(count, trials, alternative="less").proportion_ci(1 - level, method="exact").high
    assert upper_bound(count, trials, level) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("count", "trials"), [(0, 50), (17, 2000), (1000, 2000)])
def test_the_bound_is_wrong_as_rarely_as_it_says(count: int, trials: int) -> None:
    bound = upper_bound(count, trials, 1e-6)
    assert stats.binom.cdf(count, trials, bound) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(("size", "scale"), [(50, 1.0), (5000, 1.0), (5000, 0.9), (20_001, 1.02)])
def test_the_ks_test_is_that_of_scipy(size: int, scale: float) -> None:
    law = StudentT(df=5, scale=1.0)
    draws = scale * np.random.default_rng(3).standard_t(5, size)
    assert ks_p_value(draws, law.cdf) == pytest.approx(stats.ks_1samp(draws, law.cdf, method="exact").pvalue, rel=1e-6)


def test_numbers_that_are_none_follow_no_law() -> None:
    assert ks_p_value(np.array([0.1, np.nan]), stats.norm.cdf) == 0
    assert ks_p_value(np.array([0.1, np.inf]), stats.norm.cdf) == 0
