"""Privacy losses on a lattice: discretised by connecting the dots, composed exactly up to a stated error.

The method is dp_accounting's. Ten million coordinates or steps leave no room for rounding, so it is written here once
more. `connect_dots` works on the excess of a curve over that of two equal laws, which is small and accurate where the
curve itself is near 1. `compose` multiplies the characteristic functions of many different distributions at once, with
every error (tails, rounding) put on the mass at infinity, where it can only make epsilon larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft

from noisette.errors import Unaccountable

__all__ = ["LARGEST_LOSS", "Array", "Pmf", "compose", "connect_dots", "excess", "log_sum", "window"]

Array = npt.NDArray[np.float64]

LARGEST_LOSS = 600.0
"""Losses beyond this count as infinite: e^loss would leave the range of a float."""

_UNIT = 2.0**-53
_NEGLIGIBLE = -60.0  # log of a Fourier coefficient that cannot matter
_MOST_TABLE = 20_000_000
_MOST_GROUPS = 64
_MOST_PARTS = 16
_MOST_SIZE = 2**24  # losses in a window; with the rest that is about a gigabyte
_MOST_DIRECT = 30_000_000
_EXACT_CELLS = 1024
_FEW = 500


@dataclass(frozen=True, eq=False)
class Pmf:
    """Mass `probs[i]` at loss ``(lower + i) * step``, and `infinity` at an infinite loss."""

    step: float
    lower: int
    probs: Array
    infinity: float

    def __post_init__(self) -> None:
        """The one place where a lattice is looked at: what is not a number has no epsilon."""
        if not (math.isfinite(self.infinity) and np.all(np.isfinite(self.probs))):
            raise Unaccountable("a privacy loss came out undefined.", hint="please report this mechanism")

    @property
    def losses(self) -> Array:
        """The losses that carry mass, ascending."""
        return np.asarray(self.step * np.arange(self.lower, self.lower + len(self.probs)))

    @property
    def mean(self) -> float:
        """Mean of the finite losses, where an infinite one hardly happens."""
        return float(self.losses @ self.probs)

    @property
    def spread(self) -> float:
        """Standard deviation of the finite losses."""
        return math.sqrt(max(float((self.losses - self.mean) ** 2 @ self.probs), 0.0))

    def epsilon(self, delta: float) -> float:
        """The least eps >= 0 at which H is at most `delta`: what dp_accounting finds, by array operations.

        >>> round(Pmf(1.0, -1, np.array([0.25, 0.5, 0.25]), 0.0).epsilon(0.1), 4)
        0.4892
        """
        if self.infinity > delta:
            return math.inf
        losses, upper, lower = self._above()
        if not losses.size or upper[-1] - lower[-1] <= delta:
            return 0.0
        with np.errstate(divide="ignore", invalid="ignore"):  # of losses so large that e^-loss is 0
            crossings = np.log(np.maximum(upper - delta, 0.0) / lower)  # where the line of each piece of H is delta
        # from one loss down to the next H is that line in e^eps: the first piece that has its crossing inside, and if
        # none above has, the last one, whatever rounding says of its end at 0
        first = int(np.argmax(crossings >= np.append(losses[1:], -np.inf)))
        return float(min(max(crossings[first], 0.0), losses[first]))

    def delta(self, epsilons: Array) -> Array:
        """H at each of `epsilons`, none below 0: the sum of p (1 - e^(eps - loss)) over the losses above, and infinity.

        >>> Pmf(1.0, -1, np.array([0.25, 0.5, 0.25]), 0.0).delta(np.array([0.0, 1.0])).round(4).tolist()
        [0.158, 0.0]
        """
        losses, upper, lower = self._above()
        many = np.searchsorted(-losses, -np.asarray(epsilons))  # so many losses are above
        upper, lower = np.append(self.infinity, upper)[many], np.append(0.0, lower)[many]
        with np.errstate(over="ignore", invalid="ignore"):  # above all losses there is nothing to take off
            return np.where(many > 0, np.maximum(upper - np.exp(epsilons) * lower, self.infinity), self.infinity)

    def deltas(self) -> Array:
        """H at 0, step, 2 step, ... up to the largest loss."""
        top = max(0, self.lower + len(self.probs))
        return self.delta(np.asarray(self.step * np.arange(top + 1)))

    def _above(self) -> tuple[Array, Array, Array]:
        """The losses above 0, descending; the mass at each and above it, infinity included; the same times e^-loss."""
        first = max(0, 1 - self.lower)
        losses, probs = self.losses[first:][::-1], self.probs[first:][::-1]
        return losses, self.infinity + np.cumsum(probs), np.cumsum(probs * np.exp(-losses))

    def to_dp_accounting(self) -> Any:
        """The same distribution as an object of dp_accounting."""
        from dp_accounting.pld import pld_pmf  # noqa: PLC0415 - takes a second to import

        # without the zeros at the top, through which it would loop one by one
        used = self.probs[: 1 + int(np.flatnonzero(self.probs).max(initial=0))]
        return pld_pmf.DensePLDPmf(self.step, self.lower, used, min(self.infinity, 1.0), True)


def excess(forward: Callable[[Array], Array], eps: Array) -> Array:
    """H_{e^eps} - max(1 - e^eps, 0) of a symmetric pair, from its H at |eps|: H_g = 1 - g + g H_{1/g}."""
    return np.asarray(np.exp(np.minimum(eps, 0.0)) * forward(np.abs(eps)))


def connect_dots(curve: Callable[[Array], Array], step: float, reach: float) -> Pmf:
    """The pessimistic distribution on multiples of `step` in [-reach, reach] whose H has the excess `curve` there.

    Between lattice points H is linear in e^eps, a chord above the true, convex curve. The curve of two equal laws,
    max(1 - e^eps, 0), has all its mass at 0; what is left is small, so that its second differences are accurate.
    """
    top = max(1, math.ceil(reach / step))
    values = curve(np.asarray(step * np.arange(-top, top + 1)))
    rises, growth = np.diff(values), math.expm1(step)
    probs = np.empty_like(values)
    probs[1:-1] = (rises[1:] - math.exp(step) * rises[:-1]) / growth
    probs[0] = rises[0] / growth - values[0]
    probs[-1] = rises[-1] / math.expm1(-step)
    probs[top] += 1.0
    # rounding may leave a ripple below zero; adding mass can only raise H
    return Pmf(step, -top, np.maximum(probs, 0.0), float(values[-1]))


def compose(parts: Sequence[Pmf], counts: npt.NDArray[np.int64], tail: float = 1e-15) -> Iterator[Pmf]:
    """For every row of `counts` (n, K), the distribution of the sum of counts[k] independent losses of parts[k].

    The window is cut where Chernoff's bound puts less than `tail` beyond it. Logarithms of characteristic functions
    are taken from phi - 1, summed without cancellation, so that ten million factors lose no digits.
    """
    if counts.sum() == 1:
        yield parts[0]
        return
    step = parts[0].step
    lower, upper, beyond = window(parts, counts, tail)
    hopeless = float((counts @ [part.infinity for part in parts]).min()) > 1  # no delta will hold
    if lower > upper or hopeless:  # or there is no mass at losses that floats can hold
        yield from (_nothing(step) for _ in counts)
        return
    size = fft.next_fast_len(max(upper - lower + 1, *(len(part.probs) for part in parts)), real=True)
    _check_memory(size)
    chosen = _frequencies(parts, counts, size)
    _check_memory(len(parts) * len(chosen) // 4)
    # A direct sum loses nothing that matters, a fast transform a little for every factor: fine for few factors.
    cost = len(chosen) * sum(int(np.count_nonzero(part.probs)) for part in parts)
    direct = counts.max() > _FEW and cost <= _MOST_DIRECT
    logs = np.stack(
        [_log_characteristic(part, chosen, size) if direct else _log_fourier(part, chosen, size) for part in parts]
    )
    losses = np.zeros(len(parts)) if direct else np.array([_fourier_error(part, size) for part in parts])
    certain = np.array([math.log1p(-part.infinity) if part.infinity < 1 else -math.inf for part in parts])
    for row in counts:
        used = row > 0
        spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        with np.errstate(all="ignore"):  # what leaves the range of a float leaves an infinite norm
            spectrum[chosen] = np.exp(row[used] @ logs[used])
            probs = np.roll(fft.irfft(spectrum, size), -lower)[: upper - lower + 1]
            norm = float(np.linalg.norm(probs))
        rounding = math.sqrt(size) * (float(row @ losses) + (math.log2(size) + 8) * _UNIT * norm)
        infinity = rounding + beyond - math.expm1(float(row[used] @ certain[used]))
        yield Pmf(step, lower, np.maximum(probs, 0.0), infinity) if infinity < 1 else _nothing(step)


def _nothing(step: float) -> Pmf:
    """All mass at an infinite loss: what holds of any distribution, and of one that cannot be told."""
    return Pmf(step, 0, np.zeros(1), 1.0)


def window(parts: Sequence[Pmf], counts: npt.NDArray[np.int64], tail: float = 1e-15) -> tuple[int, int, float]:
    """Lattice indices of a window, and a bound on the mass that any row has above it.

    Mass outside wraps around into the window as well, which can only make epsilon larger.
    """
    weights, step = counts.astype(np.float64), parts[0].step
    largest = int((weights @ [part.lower + len(part.probs) - 1 for part in parts]).max())
    smallest = int((weights @ [part.lower for part in parts]).min())
    spread = math.sqrt(float((weights @ [part.spread**2 for part in parts]).max()))
    if spread == 0:
        return smallest, largest, 0.0
    # in units of the whole spread, and of single losses, which a rare sample may make far larger
    orders = np.concatenate([np.geomspace(0.05, 400, 48) / spread, np.geomspace(0.05, 400, 24)])
    budget = math.log(1 / tail)
    ups = weights @ np.stack([_log_moments(part, orders) for part in parts])
    downs = weights @ np.stack([_log_moments(part, -orders) for part in parts])
    up = min(float(((ups + budget) / orders).min(axis=1).max()), LARGEST_LOSS)
    down = float(((-downs - budget) / orders).max(axis=1).min())
    lower, upper = max(smallest, math.floor(down / step)), min(largest, math.ceil(up / step))
    if upper == largest:
        return lower, upper, 0.0
    return lower, upper, min(1.0, math.exp(min(0.0, float((ups - orders * upper * step).min(axis=1).max()))))


def _log_moments(part: Pmf, orders: Array) -> Array:
    """Upper bounds on log E e^(order * loss) over the finite losses, for orders that are all positive or all negative.

    A lattice may have millions of points: those far out are gathered at the worse ends of cells 1/300 as wide as they
    are far.
    """
    index = part.lower + np.flatnonzero(part.probs)
    if not index.size:
        return np.full_like(orders, -1e200)  # log 0, but a count of none times it is none
    ends = _ends(max(2 * _EXACT_CELLS, 1 - int(index[0]), 1 + int(index[-1])))
    cells = np.searchsorted(ends, index) if orders[0] > 0 else np.searchsorted(ends, index, side="right") - 1
    mass = np.bincount(cells, weights=part.probs[part.probs > 0], minlength=len(ends))
    used = mass > 0
    exponents = np.multiply.outer(orders, part.step * ends[used]) + np.log(mass[used])
    return log_sum(exponents)


@lru_cache(maxsize=64)
def _ends(farthest: int) -> npt.NDArray[np.int64]:
    """Ends of cells from -farthest to farthest, ascending."""
    far = np.geomspace(_EXACT_CELLS, farthest, math.ceil(300 * math.log(farthest / _EXACT_CELLS)))
    ends = np.unique(np.concatenate([np.arange(_EXACT_CELLS), far.astype(np.int64), [farthest]]))
    return np.concatenate([-ends[:0:-1], ends])


def log_sum(exponents: Array) -> Array:
    """Log of the sum of e^x over each row of (n, k), shape (n,): scipy's logsumexp, at least 2.5 times as fast.

    >>> log_sum(np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 0.0]])).round(2).tolist()
    [1000.69, -inf, inf]
    """
    largest = exponents.max(axis=1)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(over="ignore", divide="ignore"):  # beside an infinite one, and of zeros alone
        terms = exponents - largest[:, None]
        return np.asarray(largest + np.log(np.exp(terms, out=terms).sum(axis=1)))


def _check_memory(size: int) -> None:
    if size > _MOST_SIZE:
        raise Unaccountable(
            f"composing these losses takes {size:.2g} numbers at once, more than are kept in memory.",
            hint="take fewer coordinates or steps, a larger scale, or a law without a peak at 0, such as StudentT",
        )


def _frequencies(parts: Sequence[Pmf], counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Indices of the Fourier coefficients that can matter in any row.

    A factor's modulus is at most 1, so a group of rows is bounded by its least counts.
    """
    groups = max(1, min(len(counts), _MOST_GROUPS, 8 * _MOST_SIZE // size))
    least = np.array([group.min(axis=0) for group in np.array_split(counts, groups)])
    totals = np.zeros((len(least), size // 2 + 1))
    many = max(1, min(_MOST_PARTS, 2 * _MOST_SIZE // size))
    for start in range(0, len(parts), many):
        padded = np.zeros((len(parts[start : start + many]), size))
        for row, part in zip(padded, parts[start:], strict=False):
            row[: len(part.probs)] = part.probs
        moduli = np.log(np.maximum(np.abs(fft.rfft(padded)), 1e-300))
        totals += least[:, start : start + many].astype(np.float64) @ moduli
    return np.flatnonzero(totals.max(axis=0) > _NEGLIGIBLE)


def _log_characteristic(part: Pmf, chosen: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.complex128]:
    """Log of sum p e^(-i theta x) at the chosen frequencies, accurate where it is small."""
    index = part.lower + np.flatnonzero(part.probs)
    probs = part.probs[part.probs > 0]
    excess = math.fsum([*probs.tolist(), -1.0])
    real, imag = np.empty(len(chosen)), np.empty(len(chosen))
    chunk = max(1, _MOST_TABLE // max(len(probs), 1))
    for start in range(0, len(chosen), chunk):
        turns = np.multiply.outer(chosen[start : start + chunk], index)  # exact, in integers
        half = (np.pi / size) * ((turns + size // 2) % size - size // 2)  # near 0, where a sine keeps all its digits
        real[start : start + chunk] = excess - 2 * np.sin(half) ** 2 @ probs
        imag[start : start + chunk] = -(np.sin(2 * half) @ probs)
    square = 2 * real + real * real + imag * imag  # |phi|^2 - 1, which a small |phi| must not be taken from
    modulus = np.maximum(np.hypot(1 + real, imag), 1e-300)
    size_log = np.where(square > -0.5, 0.5 * np.log1p(np.maximum(square, -0.5)), np.log(modulus))
    return np.asarray(size_log + 1j * np.arctan2(imag, 1 + real))


def _log_fourier(part: Pmf, chosen: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.complex128]:
    """The same by a fast transform: for spectra too wide to sum directly, whose counts are never large."""
    padded = np.zeros(size)
    padded[: len(part.probs)] = part.probs
    values = fft.rfft(padded)[chosen]
    turn = -2j * np.pi / size * (part.lower * chosen % size)
    return np.asarray(np.log(np.maximum(np.abs(values), 1e-300)) + 1j * np.angle(values) + turn)


def _fourier_error(part: Pmf, size: int) -> float:
    return 8 * _UNIT * math.sqrt(math.log2(size)) * float(np.linalg.norm(part.probs))
