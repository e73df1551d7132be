"""What it costs that noise is drawn in floats: how far the law of what is released is from the ideal one.

A release tells into which cell of a public grid the sum plus its noise fell (`noisette._quantization`), and no more. So
it only matters how often noise falls into a cell, next to how often it ideally would: a ratio of 1 + eta. Accountants
know the ideal run; with eta known, `noisette.accounting._corrections` adds what the difference costs. The page on
theory has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from noisette._quantization import MAX_DIM, Grid
from noisette.accounting._corrections import Correction
from noisette.accounting.best_of import BestOf, Expenditure
from noisette.mechanism import Mechanism
from noisette.noise import Noise

__all__ = ["Rounding", "Roundings", "addition", "roundings"]

Array = npt.NDArray[np.float64]

_TAIL = 2.0**-100  # the chance of what may be drawn wrong altogether
_ULP = 2.0**-52
_DEEP = 2.0**-127  # how fine the uniforms are, absolutely
_TURNED = 2.0**-47  # how often pairs are in a wrong square of side 1 because their radius has its uniform's steps
_UP = 1.05  # for second orders, and the errors of this computation
_SMALL = 2.0**-8  # ratios for which second orders are that small
_HALVES = range(1, 14, 2)  # parts of a cell, as powers of a half, that its mass is bounded by
_SHARE = 1e-4  # of delta, that chances may take


@dataclass(frozen=True)
class Rounding:
    """How one coordinate's noise falls into cells: the mean square of eta, its largest value, and the mass left out."""

    square: float
    largest: float
    outside: float


@dataclass(frozen=True, eq=False)
class Roundings:
    """The eta (n,) of magnitudes in n pieces, never falling, and the chances (n + 1,) of lying behind their ends.

    It is that of so many draws `together`.
    """

    eta: Array
    chances: Array
    together: int = 1

    def upto(self, tail: float) -> Rounding | None:
        """With cells that noise reaches beyond with a chance of `tail`, or less, left out; None if eta is too large."""
        pieces = max(1, int(np.searchsorted(-self.chances, -tail)))
        eta, behind = self.eta[:pieces], self.chances[: pieces + 1]
        if not eta[-1] < _SMALL:
            return None
        square = float(-np.diff(behind) @ eta**2) / self.together
        return Rounding(_UP * square, float(eta[-1]), _UP * float(behind[-1]) + 2 * _TAIL)


@lru_cache(maxsize=64)
def _pieces(law: Noise) -> tuple[Array, Array]:
    """Chances u (n,), falling from 1, of a larger magnitude than x (n,), of a law at scale 1."""
    u = np.concatenate([np.linspace(1.0, 0.5, 65), np.geomspace(0.5, _TAIL, 301)[1:]])
    with np.errstate(all="ignore"):
        x = np.maximum.accumulate(np.maximum(law._abs_quantile(u), 0.0))
    x[0] = 0.0
    return u, x


@lru_cache(maxsize=256)
def roundings(noise: Noise, grid: Grid) -> Roundings | None:
    """How noise of this law falls into the cells of a grid, wherever they lie; None where nothing is known of it.

    >>> from noisette.noise import Gaussian
    >>> found = roundings(Gaussian(scale=1.0), Grid.of(largest=1.0, scale=1.0))
    >>> found.upto(2.0**-70).largest < 2.0**-31
    True
    """
    accuracy, scale = noise.sampling_error, noise.known_scale
    if accuracy is None:
        return None
    law, width = noise.replace(scale=1.0), grid.release_quantum / scale
    u, x = _pieces(law)
    end = (grid.clamp + grid.max_sum) / scale  # noise beyond is cut off, and its cell is all that lies beyond
    if x[-1] > end:
        last = int(np.searchsorted(x, end))
        u, x = np.append(u[:last], 0.0), np.append(x[:last], end)
    near, far = x[:-1], x[1:]
    # of cells whose inner end lies between near and far: an edge may be missed by so much, ...
    moved = (accuracy.position + 1) * _ULP * np.maximum(1.0, far + 2 * width)
    with np.errstate(all="ignore"):
        # ... over which lies this mass, and as much where the uniforms' own steps decide; beside that of the cell
        lost = (
            2 * moved * np.exp(law._log_prob(np.maximum(near - moved, 0.0))) + 4 * _ULP * law._standard_sf(near) + _DEEP
        )
        parts = [math.ldexp(width, -k) for k in _HALVES]
        cell = np.max([part * np.exp(law._log_prob(far + part)) for part in parts], axis=0)
        kept = accuracy.density * _ULP * (1 + np.abs(law._log_prob(far + width)))
        # never smaller further out, so that the eta of any point is that of its piece
        eta = _UP * np.maximum.accumulate(np.nan_to_num(lost / cell + 2 * kept + accuracy.relative, nan=np.inf))
    if accuracy.together > 1:
        eta = accuracy.together * eta + _TURNED / width**2
    return Roundings(eta, u, accuracy.together)


def addition(spending: Expenditure, delta: float, epsilon: float) -> Correction | None:
    """What floats add to ideal runs of this `epsilon` at `delta`; None where no such bound is known, or none so small.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=26010), Gaussian(scale=1.1), rate=256 / 60000, steps=14062)
    >>> addition((mechanism,), delta=1e-5, epsilon=2.4).shift < 1e-5
    True
    """
    failure = _SHARE / 2 * delta / (1 + math.exp(min(epsilon, 600.0) + 1))
    paid = [one for one in spending if one.steps]
    drawn = [_drawn(one, failure / (4 * len(paid))) for one in paid]
    every = [part for parts, _ in drawn for part in parts]
    if not all(_longest(mechanism) <= MAX_DIM for mechanism, _ in every):
        return None
    total = sum(count for _, count in every)
    square, largest, outside = 0.0, 0.0, sum(chance for _, chance in drawn)
    for mechanism, count in every:
        known = roundings(mechanism.noise, mechanism.grid)
        found = known and known.upto(failure / (2 * total))
        if not found:
            return None
        square, outside = square + count * found.square, outside + count * found.outside
        largest = max(largest, found.largest)
    if not 0 < outside <= failure:
        return None
    unlikely = math.log(1 / failure)
    shift = math.sqrt(2 * square * unlikely) + 2 * largest * unlikely / 3 + square
    return Correction(failure + outside, shift) if shift < 1 else None


def _longest(mechanism: Mechanism) -> int:
    """How many coordinates a step has; as many as any may have where that is open and its image the same for all."""
    return MAX_DIM if mechanism.encoder.dim is None else mechanism.encoder.dim


def _drawn(one: Mechanism | BestOf, chance: float) -> tuple[list[tuple[Mechanism, float]], float]:
    """Mechanisms and how many coordinates they draw at most, and the chance that there are more.

    A search draws those of as many runs as it makes but for a `chance`, or but for an error of its own draws. Its runs
    count as if each were of every kind that it may be of.
    """
    if isinstance(one, Mechanism):
        return [(one, float(one.steps) * _longest(one))], 0.0
    most = one.trials.quantile_bound(chance)
    return [(piece, most * float(piece.steps) * _longest(piece)) for piece in one.pieces], (chance + one.trials.error)
