"""Privacy losses on a lattice: discretised by connecting the dots, composed exactly up to a stated error.

dp_accounting turns a curve into a pessimistic probability mass function and reads epsilons off the result. Its
compositions multiply one distribution with itself; ours must multiply dozens of levels with counts in the millions,
so `compose` is written here: one product of characteristic functions for all of them, with every error (tails,
rounding) put on the mass at infinity, where it can only make epsilon larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from scipy import fft, special

__all__ = ["Array", "Pmf", "compose", "connect_dots"]

Array = npt.NDArray[np.float64]

LARGEST_LOSS = 600.0
"""Losses beyond this count as infinite: e^loss would leave the range of a float."""

_UNIT = 2.0**-53
_NEGLIGIBLE = -60.0  # log of a Fourier coefficient that cannot matter
_MOST_TABLE = 40_000_000


@dataclass(frozen=True, eq=False)
class Pmf:
    """Mass `probs[i]` at loss ``(lower + i) * step``, and `infinity` at an infinite loss."""

    step: float
    lower: int
    probs: Array
    infinity: float

    @property
    def losses(self) -> Array:
        """The losses that carry mass, ascending."""
        return self.step * np.arange(self.lower, self.lower + len(self.probs))

    @property
    def spread(self) -> float:
        """Standard deviation of the finite losses."""
        mean = float(self.losses @ self.probs)
        return math.sqrt(max(float((self.losses - mean) ** 2 @ self.probs), 0.0))

    def deltas(self) -> Array:
        """H at every loss of the lattice: sum of p (1 - e^(eps - loss)) over the losses above eps."""
        above = np.cumsum(self.probs[::-1])[::-1] - self.probs
        # sum over i > j of p_i e^(x_j - x_i), by the same suffix sum with weights kept in range block by block
        weighted = _discounted_suffix(self.probs, math.exp(-self.step))
        return np.asarray(np.clip(above - weighted, 0.0, None) + self.infinity)

    def to_dp_accounting(self) -> pld_pmf.DensePLDPmf:
        """The same distribution as an object of dp_accounting."""
        return pld_pmf.DensePLDPmf(self.step, self.lower, self.probs, min(self.infinity, 1.0), True)


def _discounted_suffix(probs: Array, discount: float) -> Array:
    """sum over i > j of probs[i] * discount**(i - j), for every j, without overflow."""
    out = np.empty_like(probs)
    block = max(1, int(500.0 / -math.log(discount))) if discount < 1 else len(probs)
    carry = 0.0  # the sum at the first index of the block that follows, its own term included
    for start in range(((len(probs) - 1) // block) * block, -1, -block):
        part = probs[start : start + block]
        k = np.arange(len(part))
        inner = np.cumsum((part * discount**k)[::-1])[::-1] - part * discount**k
        out[start : start + block] = inner / discount**k + carry * discount ** (len(part) - k)
        carry = part[0] + out[start]
    return out


def connect_dots(curve: Callable[[Array], Array], step: float, reach: float) -> Pmf:
    """The pessimistic distribution on multiples of `step` in [-reach, reach] whose H equals `curve` there."""
    top = max(1, math.ceil(reach / step))
    deltas = curve(step * np.arange(-top, top + 1))
    # the least non-increasing curve above: rounding may have left a ripple
    deltas = np.maximum.accumulate(np.clip(deltas, 0.0, 1.0)[::-1])[::-1]
    dense = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -top, top, deltas).to_dense_pmf()
    return Pmf(step, dense._lower_loss, np.asarray(dense._probs), float(dense._infinity_mass))


def compose(parts: Sequence[Pmf], counts: npt.NDArray[np.int64], tail: float = 1e-15) -> Iterator[Pmf]:
    """For every row of `counts` (n, K), the distribution of the sum of counts[k] independent losses of parts[k].

    The window is cut where Chernoff's bound puts less than `tail` beyond it. Logarithms of characteristic functions
    are taken from phi - 1, summed without cancellation, so that ten million factors lose no digits.
    """
    step = parts[0].step
    lower, upper, beyond = _window(parts, counts, tail)
    size = fft.next_fast_len(max(upper - lower + 1, *(len(part.probs) for part in parts)), real=True)
    chosen = _frequencies(parts, counts.min(axis=0), size)
    logs = np.stack([_log_characteristic(part, chosen, size) for part in parts])
    certain = np.array([math.log1p(-part.infinity) if part.infinity < 1 else -math.inf for part in parts])
    for row in counts:
        used = row > 0
        spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        spectrum[chosen] = np.exp(row[used] @ logs[used])
        probs = np.roll(fft.irfft(spectrum, size), -lower)[: upper - lower + 1]
        rounding = math.sqrt(size) * (math.log2(size) + 8) * _UNIT * float(np.linalg.norm(probs))
        lost = -math.expm1(float(row[used] @ certain[used]))
        yield Pmf(step, lower, np.maximum(probs, 0.0), lost + beyond + rounding)


def _window(parts: Sequence[Pmf], counts: npt.NDArray[np.int64], tail: float) -> tuple[int, int, float]:
    """Lattice indices of a window, and a bound on the mass that any row has above it.

    Mass outside wraps around into the window as well, which can only make epsilon larger.
    """
    weights, step = counts.astype(np.float64), parts[0].step
    largest = int((weights @ [part.lower + len(part.probs) - 1 for part in parts]).max())
    smallest = int((weights @ [part.lower for part in parts]).min())
    spread = math.sqrt(float((weights @ [part.spread**2 for part in parts]).max()))
    if spread == 0:
        return smallest, largest, 0.0
    orders = np.geomspace(0.05, 400, 72) / spread
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
    """log E e^(order * loss) over the finite losses, for each order."""
    used = part.probs > 0
    exponents = np.multiply.outer(orders, part.losses[used]) + np.log(part.probs[used])
    return np.asarray(special.logsumexp(exponents, axis=1))


def _frequencies(parts: Sequence[Pmf], least: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Indices of the Fourier coefficients that can matter in any row, given each part's least count."""
    total = np.zeros(size // 2 + 1)
    for part, count in zip(parts, least, strict=True):
        if count:
            padded = np.zeros(size)
            padded[: len(part.probs)] = part.probs
            with np.errstate(divide="ignore"):
                total += count * np.log(np.abs(fft.rfft(padded)))
    return np.flatnonzero(total > _NEGLIGIBLE)


def _log_characteristic(part: Pmf, chosen: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.complex128]:
    """log of sum p e^(-i theta x) at the chosen frequencies, accurate where it is small."""
    index = part.lower + np.flatnonzero(part.probs)
    probs = part.probs[part.probs > 0]
    excess = math.fsum([*probs.tolist(), -1.0])
    real, imag = np.empty(len(chosen)), np.empty(len(chosen))
    chunk = max(1, _MOST_TABLE // max(len(probs), 1))
    for start in range(0, len(chosen), chunk):
        turns = np.multiply.outer(chosen[start : start + chunk], index) % size  # exact, in integers
        half = (np.pi / size) * turns
        real[start : start + chunk] = excess - 2 * np.sin(half) ** 2 @ probs
        imag[start : start + chunk] = -(np.sin(2 * half) @ probs)
    with np.errstate(divide="ignore"):
        size_log = 0.5 * np.log1p(np.maximum(2 * real + real * real + imag * imag, -1.0))
    return np.asarray(size_log + 1j * np.arctan2(imag, 1 + real))
