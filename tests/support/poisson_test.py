"""A test of P6: do batches come from Poisson sampling at the declared rate?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVEL = 1e-6
"""Of each test: false alarms among a million correct samplers."""


def sampling_faults(draws: Sequence[np.ndarray], examples: int, rate: float) -> list[str]:
    """The names of the tests that `draws`, one array of indices for each step, fails; empty for a correct sampler."""
    steps = len(draws)
    member = np.zeros((steps, examples), dtype=bool)
    for step, index in enumerate(draws):
        member[step, index] = True
    counts, sizes = member.sum(axis=0), member.sum(axis=1)
    both = (member.T.astype(np.float64) @ member.astype(np.float64)).round().astype(np.int64)
    pairs = both[np.triu_indices(examples, 1)]
    odd = steps - steps % 2
    again = int((member[0:odd:2] & member[1:odd:2]).sum())
    spread = float((((counts - steps * rate) ** 2) / (steps * rate * (1 - rate))).sum())
    values = {
        "an index is too frequent or too rare": _binomial(counts, steps, rate) * examples,
        "batches are too large or too small": _binomial(counts.sum(keepdims=True), steps * examples, rate),
        "indices are too regular": 2 * min(stats.chi2.cdf(spread, examples), stats.chi2.sf(spread, examples)),
        "sizes are not binomial": _sizes(sizes, examples, rate),
        "a pair is together too often or too rarely": _binomial(pairs, steps, rate**2) * len(pairs),
        "an index avoids or follows itself": _binomial(np.array([again]), examples * odd // 2, rate**2),
    }
    found = [name for name, p in values.items() if p < LEVEL]
    return found + ["an index comes twice"] * any(len(np.unique(index)) < len(index) for index in draws)


def _binomial(counts: np.ndarray, n: int, p: float) -> float:
    """The least two-sided p-value of `counts` as draws of a binomial law."""
    below, above = stats.binom.cdf(counts, n, p), stats.binom.sf(counts - 1, n, p)
    return float(2 * np.minimum(below, above).min())


def _sizes(sizes: np.ndarray, examples: int, rate: float) -> float:
    """Chi-square over cells of at least eight expected batches each."""
    expected = len(sizes) * stats.binom.pmf(np.arange(examples + 1), examples, rate)
    observed = np.bincount(sizes, minlength=examples + 1)
    ends, total = [], 0.0
    for value, mass in enumerate(expected):
        total += mass
        if total >= 8 and expected[value + 1 :].sum() >= 8:
            ends.append(value + 1)
            total = 0.0
    cells = [np.add.reduceat(series, [0, *ends]) for series in (observed, expected)]
    return float(stats.chisquare(*cells, sum_check=False).pvalue)
