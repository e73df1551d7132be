"""Sums of independent losses: distributions composed exactly, up to a stated error.

`compose` multiplies the characteristic functions of many different distributions at once, with every error (tails,
rounding) put on mass where it can only make epsilon larger: at infinity, or above all losses that it may belong to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import fft

from noisette.accounting._pmf import LARGEST_LOSS, Array, Pmf, log_sum
from noisette.errors import Unaccountable

__all__ = ["compose", "window"]

_UNIT = 2.0**-53
_NEGLIGIBLE = -60.0  # log of a Fourier coefficient that cannot matter
_MOST_TABLE = 20_000_000
_MOST_GROUPS = 64
_MOST_PARTS = 16
_MOST_SIZE = 2**24  # losses in a window; with the rest that is about a gigabyte
_MOST_DIRECT = 30_000_000
_EXACT_CELLS = 1024
_FEW = 500
_COARSE, _FINE = 1e-12, 1e-16  # errors of a transform that ask for a sharper one, and that do not
_ABOVE = 1e6  # how far above an error a tail is that may have it
_MOST_TILTS = 4
_MOST_ROOM = 8  # times a window


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
    certain = np.array([math.log1p(-part.infinity) if part.infinity < 1 else -math.inf for part in parts])
    for row, (probs, rounding) in zip(counts, _transformed(parts, counts, lower, upper), strict=True):
        used = row > 0
        rest = beyond - math.expm1(float(row[used] @ certain[used]))
        error = _sharpen([part for part, n in zip(parts, row, strict=True) if n], row[used], lower, probs, rounding)
        infinity = error + rest
        yield Pmf(step, lower, probs, infinity) if infinity < 1 else _nothing(step)


def _transformed(
    parts: Sequence[Pmf], counts: npt.NDArray[np.int64], lower: int, upper: int, room: int = 0
) -> Iterator[tuple[Array, float]]:
    """For every row of `counts`, the masses of the sum of finite losses at lattice points, and the sum of their errors.

    None is below zero. What lies outside of the window wraps around into it, after `room` lattice points or more.
    """
    size = fft.next_fast_len(max(upper - lower + 1, room, *(len(part.probs) for part in parts)), real=True)
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
    for row in counts:
        used = row > 0
        spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        with np.errstate(all="ignore"):  # what leaves the range of a float leaves an infinite norm
            spectrum[chosen] = np.exp(row[used] @ logs[used])
            probs = np.roll(fft.irfft(spectrum, size), -lower)[: upper - lower + 1]
            norm = float(np.linalg.norm(probs))
        rounding = math.sqrt(size) * (float(row @ losses) + (math.log2(size) + 8) * _UNIT * norm)
        yield np.maximum(probs, 0.0), rounding


def _sharpen(parts: Sequence[Pmf], row: npt.NDArray[np.int64], lower: int, probs: Array, error: float) -> float:
    """Make the upper tail of `probs`, masses of a sum whose errors sum to `error`, as accurate as it is unlikely.

    With e^(order * loss) as a weight on every loss the tail is the middle, and an error there is worth as much less as
    the weights are taken off again. Such a transform takes over where Chernoff's bound has come down to a million times
    the error so far, all of which is put at the loss where that happens: above all losses that it may belong to.
    Returns the error that is left.
    """
    if not _COARSE < error < 1:
        return error
    step, upper, start = parts[0].step, lower + len(probs) - 1, lower - 1
    weights = row.astype(np.float64)
    orders = _orders(math.sqrt(float(weights @ [part.spread**2 for part in parts])))
    tops = weights @ np.stack([_log_moments(part, orders) for part in parts])
    for _ in range(_MOST_TILTS):
        reached = math.log(error * _ABOVE)
        places = (tops - reached) / orders
        order, last = float(orders[places.argmin()]), start
        start = math.ceil(min(float(places.min()), LARGEST_LOSS) / step)
        if error <= _FINE or reached >= 0 or not max(last, lower) < start < upper:
            break
        tilted = [_tilted(part, order) for part in parts]
        # under the weights the upper tail is long, and would be added to the window
        least, most, _ = window([part for part, _ in tilted], row[None])
        room = min(max(upper, most) - min(lower, least) + 1, _MOST_ROOM * len(probs))
        sharper, left = next(_transformed([part for part, _ in tilted], row[None], lower, upper, room))
        logs = weights @ [log for _, log in tilted] - order * step * np.arange(start, upper + 1)
        # beyond what rounding does to weights and their product
        widest = max(1.0, order * step * max(abs(lower), upper), *(abs(log) for _, log in tilted))
        factors = np.exp(logs) * (1 + 16 * _UNIT * widest * (2 + float(weights.sum())))
        probs[start - lower :] = sharper[start - lower :] * factors
        probs[start - lower] += error
        error = left * float(factors[0])
    return error


def _tilted(part: Pmf, order: float) -> tuple[Pmf, float]:
    """The finite losses of `part` with weights e^(order * loss), and the log of the sum that they were divided by."""
    with np.errstate(divide="ignore"):
        logs = np.log(part.probs) + order * part.losses
    total = float(log_sum(logs[None])[0])
    return Pmf(part.step, part.lower, np.exp(logs - total), 0.0), total


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
    orders = _orders(spread)
    budget = math.log(1 / tail)
    ups = weights @ np.stack([_log_moments(part, orders) for part in parts])
    downs = weights @ np.stack([_log_moments(part, -orders) for part in parts])
    up = min(float(((ups + budget) / orders).min(axis=1).max()), LARGEST_LOSS)
    down = float(((-downs - budget) / orders).max(axis=1).min())
    lower, upper = max(smallest, math.floor(down / step)), min(largest, math.ceil(up / step))
    if upper == largest:
        return lower, upper, 0.0
    return lower, upper, min(1.0, math.exp(min(0.0, float((ups - orders * upper * step).min(axis=1).max()))))


def _orders(spread: float) -> Array:
    """Orders to look for Chernoff's best bound at.

    They are in units of the whole spread, and of single losses, which a rare sample may make far larger.
    """
    return np.concatenate([np.geomspace(0.05, 400, 48) / spread, np.geomspace(0.05, 400, 24)])


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
