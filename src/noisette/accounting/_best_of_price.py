"""The price of choosing: the curve of a search from the curves of one run, for any law of how many runs there are.

With P and Q what one run gives on neighbouring data, f the generating function of the number of runs, T(t) the largest
Q(E) of any event with P(E) = t, and c the largest f'(1 - t) / f'(1 - T(t)): delta'(eps) <= f'(1) delta(eps - log c).
The proof is in docs/selection.md. T needs the profile of Q against P, the OTHER direction than delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noisette.accounting._pmf import Array, Pmf
from noisette.accounting.num_trials import NumTrials

__all__ = ["DirectionalDivergences", "best_of_delta", "best_of_divergence", "log_ratio", "pointwise_max"]

_ORDERS = 1500  # values of e that T is bounded with
_CLOSE = 1e-6  # how far the log of c may lie above its largest value that was seen
_MOST_CELLS = 2_000_000


@dataclass(frozen=True, eq=False)
class DirectionalDivergences:
    """When an example is removed and added: the excess of H over that of two equal laws, and how far both reach."""

    removal: Callable[[Array], Array]
    addition: Callable[[Array], Array]
    reach: float


class _Profile:
    """Upper bounds on H_{e^eps}(P || Q) at eps >= 0, the largest over several pairs."""

    def __init__(self, pmfs: Sequence[Pmf]) -> None:
        self._known = [(pmf.step, pmf.deltas()) for pmf in pmfs]
        self.reach = max(step * (len(values) - 1) for step, values in self._known)

    def __call__(self, eps: Array) -> Array:
        return np.asarray(np.max([_between(values, step, eps) for step, values in self._known], axis=0))


def _between(values: Array, step: float, eps: Array) -> Array:
    """The curve through values[k] at k * step: linear in e^eps between, as a lattice distribution's is."""
    place = np.minimum(eps / step, len(values) - 1.0)
    left = np.minimum(place.astype(np.int64), len(values) - 2)
    weight = np.clip(np.expm1((place - left) * step) / math.expm1(step), 0.0, 1.0)
    return np.asarray(values[left] * (1 - weight) + values[left + 1] * weight)


def pointwise_max(several: Sequence[DirectionalDivergences]) -> DirectionalDivergences:
    """The pointwise maximum: for examples that are of one of several kinds each."""
    return DirectionalDivergences(
        lambda eps: np.max([sides.removal(eps) for sides in several], axis=0),
        lambda eps: np.max([sides.addition(eps) for sides in several], axis=0),
        max(sides.reach for sides in several),
    )


def best_of_divergence(trials: NumTrials, losses: Sequence[tuple[Pmf, Pmf]]) -> DirectionalDivergences:
    """A search, from what every run that it may make loses when an example is removed, and when one is added.

    The curves have to be asked for at all losses of interest at once, ascending: the more, the tighter they are.
    """
    removed, added = _Profile([one for one, _ in losses]), _Profile([one for _, one in losses])
    ratios = log_ratio(trials, removed, added), log_ratio(trials, added, removed)
    bounds = best_of_delta(trials, removed, added, ratios[0]), best_of_delta(trials, added, removed, ratios[1])
    return DirectionalDivergences(
        _excess(*bounds), _excess(*bounds[::-1]), max(removed.reach, added.reach) + max(ratios)
    )


def best_of_delta(
    trials: NumTrials, forward: Callable[[Array], Array], opposite: Callable[[Array], Array], ratio: float
) -> Callable[[Array], Array]:
    """The least that is known to hold of delta' at eps >= 0, in the direction of `forward`: m delta(eps - log c).

    `ratio` is the log of c. Below 0, delta follows from the other direction: H_g = 1 - g + g H_{1/g}.
    """

    def bound(eps: Array) -> Array:
        inner = eps - ratio
        gamma = np.exp(np.minimum(inner, 0.0))
        below = 1 - gamma + gamma * opposite(np.maximum(-inner, 0.0))
        return np.minimum(trials.mean * np.where(inner < 0, below, forward(np.maximum(inner, 0.0))), 1.0)

    return bound


def _excess(forward: Callable[[Array], Array], opposite: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def curve(eps: Array) -> Array:
        falls = np.minimum(eps, 0.0)
        values = np.where(eps < 0, np.exp(falls) * opposite(-falls), forward(np.maximum(eps, 0.0)))
        equal = -np.expm1(falls)
        return np.asarray(_hull(np.exp(eps), equal + values) - equal)

    return curve


def log_ratio(trials: NumTrials, forward: Callable[[Array], Array], opposite: Callable[[Array], Array]) -> float:
    """The log of c, from above. Both profiles take eps >= 0; `forward` is the direction that the price is for.

    f'(1 - t) falls in t and T rises, so on a cell [a, b] the ratio is at most f'(1 - a) / f'(1 - T(b)). Cells are cut
    until that is within a millionth of a value that is attained.
    """
    top = _trade(forward, opposite)
    ends = np.concatenate([[0.0], np.geomspace(1e-18, 1.0, 400)])
    low, high, best = ends[:-1], ends[1:], 0.0
    while True:
        floors = trials.log_pgf_slope(top(high))
        bounds = trials.log_pgf_slope(low) - floors
        best = max(best, float((trials.log_pgf_slope(high) - floors).max()))
        open_ = bounds > best + _CLOSE
        if not open_.any() or 2 * open_.sum() > _MOST_CELLS:
            return max(best + _CLOSE, float(bounds.max()))
        low, high = low[open_], high[open_]
        middle = np.where(low > 0, np.sqrt(low * high), high * 1e-3)
        stuck = (middle <= low) | (middle >= high)  # no float in between
        if stuck.all():
            return max(best + _CLOSE, float(bounds.max()))
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])


def _trade(forward: Callable[[Array], Array], opposite: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """T from above, as the least of many lines, each of which holds for every event E.

    Q(E) <= e^e P(E) + opposite(e); and of the event's complement P(not E) <= e^e Q(not E) + forward(e).
    """
    far = max(_far(forward), _far(opposite))
    orders = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, _ORDERS // 3) * far, np.linspace(0.0, far, _ORDERS)[1:]])
    orders.sort()
    slopes = np.concatenate([np.exp(orders[::-1]), np.exp(-orders)])
    offsets = np.concatenate([opposite(orders)[::-1], -np.expm1(-orders) + np.exp(-orders) * forward(orders)])
    slopes, offsets, changes = _least(slopes, offsets)

    def top(t: Array) -> Array:
        line = np.searchsorted(changes, t)
        near = [np.clip(line + shift, 0, len(slopes) - 1) for shift in (-1, 0, 1)]
        return np.asarray(np.minimum(np.min([slopes[i] * t + offsets[i] for i in near], axis=0), 1.0))

    return top


def _far(profile: Callable[[Array], Array]) -> float:
    """An eps beyond which the profile hardly falls."""
    grid = np.geomspace(1e-6, 600.0, 600)
    values = profile(grid)
    return float(grid[np.flatnonzero(values <= values[-1] + 1e-15)[0]])


def _least(slopes: Array, offsets: Array) -> tuple[Array, Array, Array]:
    """The lines of the lower envelope on t >= 0, slopes falling, and where each gives way to the next."""
    kept: list[int] = []
    changes: list[float] = []
    for i in range(len(slopes)):
        if kept and slopes[i] == slopes[kept[-1]]:
            if offsets[i] >= offsets[kept[-1]]:
                continue
            kept.pop()
            changes = changes[: max(0, len(kept) - 1)]
        while kept:
            cross = (offsets[i] - offsets[kept[-1]]) / (slopes[kept[-1]] - slopes[i])
            if cross > (changes[-1] if changes else 0.0):
                break
            kept.pop()
            changes = changes[: max(0, len(kept) - 1)]
        if kept:
            changes.append(float(cross))
        kept.append(i)
    return slopes[kept], offsets[kept], np.array(changes)


def _hull(x: Array, values: Array) -> Array:
    """The lower convex hull of the points and of (0, 1), at x > 0, ascending.

    A true curve is convex and lies below the points, so it lies below every chord between some of them.
    """
    px, py = [0.0], [1.0]
    for a, b in zip(x.tolist(), values.tolist(), strict=True):
        while len(px) > 1 and (py[-1] - py[-2]) * (a - px[-2]) >= (b - py[-2]) * (px[-1] - px[-2]):
            px.pop()
            py.pop()
        px.append(a)
        py.append(b)
    return np.asarray(np.interp(x, px, py))
