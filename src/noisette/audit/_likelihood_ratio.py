"""The likelihood ratio that an attacker judges a release by, and its law if the claim is true."""

from __future__ import annotations

import numpy as np

from noisette.audit._intervals import Array
from noisette.noise import Noise
from noisette.random import Generator

__all__ = ["Statistic"]

_CELLS = 2**14
_AT_ONCE = 2**15  # values that stay in the cache
_SIMULATED = 2**22, 100, 4000  # values in all, fewest and most draws of the claimed law
_SCORES, _GROUPS = 4000, 64


class Statistic:
    """Sums over coordinates of ln z(y - s) - ln z(y), for one law at any scale.

    ln z comes from a table. An attacker may round: what is lost is a little of the attack, and nothing of what its
    verdict means. Sampling makes the likelihood ratio ln(1 - q + q e^score), which rises with the score: the same
    tests, by the same thresholds.

    >>> from noisette.noise import Gaussian
    >>> judge = Statistic(Gaussian())
    >>> judge.scores(np.array([[0.3, 1.0]]), np.array([0.1, 0.2]), scale=1.0).round(3).tolist()
    [0.205]
    """

    def __init__(self, noise: Noise) -> None:
        law = noise.replace(scale=1.0)
        share = np.arange(_CELLS) / _CELLS  # = x / (1 + x), so that tails of any weight find room
        values = law.log_prob(share / (1 - share))
        values = np.maximum(values, values[np.isfinite(values)].min())
        self._values, self._slopes = values, np.append(np.diff(values), 0.0)
        # Magnitudes by the log odds of a larger one. They are quantiles of the accounting half of the law: the half
        # that samples has no part in what is simulated.
        self._odds = np.linspace(-36.0, 36.0, 721)
        self._sizes = law.magnitude(1 / (1 + np.exp(self._odds)))

    def scores(self, rows: Array, shift: Array, scale: float) -> Array:
        """Log-likelihood ratios (n,) of rows (n, d), with noise at `scale`, with and without a shift (d,)."""
        out = np.empty(len(rows))
        step = max(1, _AT_ONCE // len(shift))
        for start in range(0, len(rows), step):
            out[start : start + step] = self._terms(rows[start : start + step] / scale, shift / scale).sum(axis=1)
        return out

    def simulated(self, shift: Array, scale: float, rate: float, generator: Generator) -> tuple[Array, Array]:
        """Scores without and with the canary, were the claim true, from draws that nobody tests.

        Coordinates are independent: a few draws of groups of them, put together at random, make many scores.
        """
        absent, present = (self._simulated_groups(at, shift / scale, generator) for at in (0.0, 1.0))
        takes_part = generator.uniforms(_SCORES) <= rate
        with_canary = np.where(takes_part, _together(present, generator), _together(absent, generator))
        return _together(absent, generator), with_canary

    def _simulated_groups(self, present: float, shift: Array, generator: Generator) -> Array:
        """Parts (n, groups) of the scores of n draws, with the canary or without; shift (d,) over the scale."""
        total, fewest, most = _SIMULATED
        count, dim = max(fewest, min(most, total // len(shift))), len(shift)
        starts = np.unique(np.linspace(0, dim, min(dim, _GROUPS), endpoint=False).astype(np.int64))
        out = np.empty((count, len(starts)))
        step = max(1, _AT_ONCE // dim)
        for start in range(0, count, step):
            part = out[start : start + step]
            signs, u = generator.signed_uniforms(len(part) * dim)
            draws = signs * np.interp(np.log1p(-u) - np.log(u), self._odds, self._sizes)
            terms = self._terms(draws.reshape(-1, dim) + present * shift, shift)
            part[:] = np.add.reduceat(terms, starts, axis=1)
        return out

    def _terms(self, rows: Array, shift: Array) -> Array:
        return self._log_density(rows - shift) - self._log_density(rows)

    def _log_density(self, x: Array) -> Array:
        """The table at x, any shape, up to a constant; linear between its points."""
        size = np.abs(x)
        with np.errstate(invalid="ignore"):  # what is not finite scores as not a number, and nothing else
            place = size / (1 + size)
            place *= _CELLS
            cell = place.astype(np.int64)
        place -= cell
        place *= self._slopes.take(cell, mode="clip")
        return np.asarray(place + self._values.take(cell, mode="clip"))


def _together(groups: Array, generator: Generator) -> Array:
    """Scores (m,) from parts (n, groups), each of another draw."""
    rows = (generator.uniforms(_SCORES * groups.shape[1]) * len(groups)).astype(np.int64).reshape(_SCORES, -1)
    chosen = np.minimum(rows, len(groups) - 1)
    return np.asarray(np.take_along_axis(groups, chosen, axis=0).sum(axis=1))
