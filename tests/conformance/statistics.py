"""Tests of P4: do draws follow the law that the noise declares?

Every test here has a level of 1e-6 (false alarms among a million correct samplers), and the draws come from fixed
seeds, so that a correct sampler does not fail now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from noisette import Noise

LEVEL = 1e-6
COLUMNS = 50


def sampling_faults(noise: Noise, draws: np.ndarray) -> list[str]:
    """The names of the tests that `draws` fails as independent draws of `noise`; empty for a correct sampler."""
    return [name for name, rejects in _tests(noise, draws) if rejects]


def ks_distance(draws: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray], stride: int = 100) -> float:
    """The Kolmogorov-Smirnov distance, exactly, with few calls of `cdf`.

    On a gap between every stride-th order statistic both functions only rise, which bounds the distance there;
    the law is evaluated in full only on gaps that could hold the maximum.
    """
    x = np.sort(draws)
    n = len(x)
    knots = np.unique(np.append(np.arange(0, n, stride), n - 1))
    at = cdf(x[knots])
    best = float(np.max(np.maximum((knots + 1) / n - at, at - knots / n)))
    ceiling = np.maximum(knots[1:] / n - at[:-1], at[1:] - (knots[:-1] + 1) / n)
    for gap in np.flatnonzero(ceiling > best):
        inner = np.arange(knots[gap] + 1, knots[gap + 1])
        if len(inner) and ceiling[gap] > best:
            f = cdf(x[inner])
            best = max(best, float(np.max(np.maximum((inner + 1) / n - f, f - inner / n))))
    return best


def ks_rejects(noise: Noise, draws: np.ndarray) -> bool:
    return stats.kstwo.sf(ks_distance(draws, noise.cdf), len(draws)) < LEVEL


def _tests(noise: Noise, draws: np.ndarray) -> Iterator[tuple[str, bool]]:
    n = len(draws)
    if not np.all(np.isfinite(draws)):
        yield "not finite", True
        return
    yield "ks", ks_rejects(noise, draws)

    for u in (0.5, 1e-2, 1e-3, 1e-4, 1e-5):
        beyond = np.abs(draws) > noise.magnitude(u)
        yield f"exceedance {u:g}", stats.binomtest(int(beyond.sum()), n, u).pvalue < LEVEL
        up = int((draws[beyond] > 0).sum())
        yield f"sign beyond {u:g}", stats.binomtest(up, max(int(beyond.sum()), 1), 0.5).pvalue < LEVEL
    yield "sign", stats.binomtest(int((draws > 0).sum()), n, 0.5).pvalue < LEVEL

    # 64-bit draws all but never coincide; a coarser grid, say 32 bits, shows here. Expected: n^2 / 2^54
    yield "repeats", n - len(np.unique(draws)) > 3 + n * n / 2**54

    # bounded transforms, because some laws have no variance: sign, and magnitude between 0 and 1
    sign = np.sign(draws)
    size = np.abs(draws) / (np.abs(draws) + noise.magnitude(0.5))
    yield "all of one size", size.std() == 0
    if size.std() == 0:
        return
    size = (size - size.mean()) / size.std()
    yield "sign against size", _correlated(sign, size)
    for lag in (1, 2, COLUMNS, n // 2):
        for name, series in (("sign", sign), ("size", size)):
            yield f"{name} at lag {lag}", _correlated(series[:-lag], series[lag:])
    for name, series in (("sign", sign), ("size", size)):
        yield f"{name} across coordinates", _coordinates_correlated(series.reshape(-1, COLUMNS))


def _correlated(a: np.ndarray, b: np.ndarray) -> bool:
    """Is the mean of a * b, both with mean 0 and variance 1, too far from 0?"""
    return 2 * stats.norm.sf(abs(float(a @ b)) / math.sqrt(len(a))) < LEVEL


def _coordinates_correlated(table: np.ndarray) -> bool:
    """Is any pair of columns correlated, the level shared among all pairs?"""
    pairs = np.triu_indices(table.shape[1], 1)
    scores = (table.T @ table)[pairs] / math.sqrt(len(table))
    return 2 * stats.norm.sf(np.abs(scores).max()) * len(pairs[0]) < LEVEL
