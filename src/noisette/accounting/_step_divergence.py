"""The curve of one step before sampling: H_{e^eps} between the noise shifted by the worst encoding, and the noise.

By dominance (docs/theory.md) the worst shift of an image is a profile itself, so the curve is that of a product of
one-dimensional pairs, one for every coordinate: discretised level by level, composed over the counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from noisette.accounting._pmf import LARGEST_LOSS, Array, Pmf, connect_dots, excess
from noisette.accounting.composition import compose
from noisette.encoders import Encoder, Image
from noisette.encoders.profiles import ProfileSet
from noisette.noise import Noise

__all__ = ["Curve", "levels_and_counts", "step_curve"]

MOST_LEVELS = 512
"""Distinct levels that are accounted exactly; more are rounded UP to this many."""

_MOST_COMBINATIONS = 1024
_FINENESS = 20.0  # lattice points for a typical coordinate's loss
_NODES = np.linspace(-12.0, 12.0, 4096)


@dataclass(frozen=True, eq=False)
class Curve:
    """An upper bound on H_{e^eps} of one step without sampling, the same in both directions.

    `forward` holds for eps >= 0. Beyond `reach` it is below every delta of interest; `basis` says how the image was
    bounded.
    """

    forward: Callable[[Array], Array]
    reach: float
    basis: str


@lru_cache(maxsize=32)
def step_curve(encoder: Encoder, noise: Noise, exchanged: bool = False) -> Curve:
    """The curve of one step of an encoder and a noise, before sampling; of one that exchanges two examples, if asked.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> float(step_curve(L2(dim=9), Gaussian(scale=1.0)).forward(np.array(0.0)).round(4))
    0.3829
    """
    image = encoder.exchanged if exchanged else encoder.image
    if noise.rotation_invariant:
        return _single(noise, image.norm, "L2 norm")
    levels, counts, basis = levels_and_counts(image)
    if counts.shape == (1, 1) and counts[0, 0] == 1:
        return _single(noise, float(levels[0]), basis)
    return _product(noise, levels, counts, basis)


def _single(noise: Noise, tau: float, basis: str) -> Curve:
    """One coordinate carries the whole shift: the law's own curve."""
    return Curve(lambda eps: noise.hockey_stick(eps, tau), _reach(noise, tau, 1e-18), basis)


def _product(noise: Noise, levels: Array, counts: npt.NDArray[np.int64], basis: str) -> Curve:
    spreads = np.array([_loss_spread(noise, level) for level in levels])
    coordinates = int(counts.sum(axis=1).max())
    total = math.sqrt(float((counts @ spreads**2).max()))
    reaches = [_reach(noise, level, 1e-17 / coordinates) for level in levels]
    step = max(total / max(_FINENESS * math.sqrt(coordinates), 2000.0), max(reaches) / 2**20)
    parts = [_part(noise, level, step, reach) for level, reach in zip(levels, reaches, strict=True)]
    best = np.zeros(1)
    for pmf in compose(parts, counts):
        best = _pointwise_maximum(best, pmf.deltas())
    return Curve(_interpolated(best, step), step * (len(best) - 1), basis)


def _part(noise: Noise, level: float, step: float, reach: float) -> Pmf:
    def curve(eps: Array) -> Array:
        half = noise.hockey_stick(eps[len(eps) // 2 :], level)  # the other half of the lattice is its mirror image
        return excess(lambda _: np.concatenate([half[:0:-1], half]), eps)

    return connect_dots(curve, step, reach)


def levels_and_counts(image: Image, most: int = MOST_LEVELS) -> tuple[Array, npt.NDArray[np.int64], str]:
    """Levels (K,) above zero and, for every profile to maximise over, how many coordinates have each, (n, K).

    Also says how the image was bounded: a few combinations of block profiles are all taken, of too many blocks the
    rank-wise envelope of each is. More than `most` distinct levels are rounded up to that many.
    """
    blocks = image.profiles
    basis = "profile" if all(len(block) == 1 for block in blocks) else "pointwise maximum over profiles"
    if len(blocks) > 1 and math.prod(len(block) for block in blocks) > _MOST_COMBINATIONS:
        blocks = tuple(block.envelope() for block in blocks)
        basis = "rank-wise envelope of each block's profiles"
    levels = _common_levels(blocks, most)
    tables = [_count_table(block, levels) for block in blocks]
    rows = np.array([np.sum(rows, axis=0) for rows in itertools.product(*tables)])
    rows = np.unique(rows, axis=0)
    used = (levels > 0) & rows.any(axis=0)
    return levels[used], rows[:, used], basis


def _common_levels(blocks: tuple[ProfileSet, ...], most: int) -> Array:
    values = np.concatenate([block.levels[:: _stride(block)].ravel() for block in blocks])
    weights = np.concatenate([np.tile(block.counts, len(block.levels[:: _stride(block)])) for block in blocks])
    distinct = np.unique(values)
    if distinct.size <= most and all(_stride(block) == 1 for block in blocks):
        return distinct
    # Rounding a level x up by a cell of width w costs about x w in squared norm. For a given number of cells the sum
    # is least with widths proportional to (density * x)^(-1/2).
    density, edges = np.histogram(values, bins=4096, weights=weights)
    middle = (edges[1:] + edges[:-1]) / 2
    share = np.cumsum(np.sqrt(density * middle) + 1e-9)
    targets = np.linspace(0, share[-1], most)[1:]
    grid = edges[1:][np.minimum(np.searchsorted(share, targets), len(middle) - 1)]
    return np.unique(np.append(grid, [block.levels.max() for block in blocks]))


def _stride(block: ProfileSet) -> int:
    """Looking at one profile in so many is enough to place levels; all of them are counted."""
    return 1 + block.levels.size // 1_000_000


def _count_table(block: ProfileSet, levels: Array) -> npt.NDArray[np.int64]:
    """(n, K) coordinates of each profile at each common level, rounded up."""
    cells = np.searchsorted(levels, block.levels)
    table = np.zeros((len(block), len(levels)), dtype=np.int64)
    for row, cell in zip(table, cells, strict=True):
        np.add.at(row, cell, block.counts)
    return table


def _reach(noise: Noise, tau: float, mass: float) -> float:
    """An eps beyond which the one-dimensional H falls by at most `mass` until losses that count as infinite."""
    grid = np.geomspace(1e-7, LARGEST_LOSS, 240)
    curve = noise.hockey_stick(grid, tau)
    return float(grid[np.flatnonzero(curve - curve[-1] <= mass)[0]])


def _loss_spread(noise: Noise, tau: float) -> float:
    """Root mean square of the loss of one coordinate: only the lattice's fineness hangs on it."""
    y = noise.known_scale * np.sinh(_NODES)
    with np.errstate(all="ignore"):  # some of scipy's densities underflow far out, where there is no mass to weigh
        mass = np.exp(noise.log_prob(y)) * np.cosh(_NODES)
        loss = np.minimum(np.abs(noise.loss(y, tau)), LARGEST_LOSS)
    seen = (mass > 0) & ~np.isnan(loss)
    return math.sqrt(float(loss[seen] ** 2 @ mass[seen] / mass[seen].sum()))


def _pointwise_maximum(a: Array, b: Array) -> Array:
    if len(a) < len(b):
        a, b = b, a
    padded = np.append(b, np.full(len(a) - len(b), b[-1]))
    return np.asarray(np.maximum(a, padded))


def _interpolated(values: Array, step: float) -> Callable[[Array], Array]:
    """The curve through H = values[k] at k * step, linear in e^eps in between, as a lattice distribution's is."""

    def forward(eps: Array) -> Array:
        place = np.minimum(eps / step, len(values) - 1.0)
        left = np.minimum(place.astype(np.int64), len(values) - 2)
        weight = np.clip(np.expm1((place - left) * step) / math.expm1(step), 0.0, 1.0)
        return np.asarray(values[left] * (1 - weight) + values[left + 1] * weight)

    return forward
