"""Sums and releases on public grids, so that what is proved of real numbers holds for floats: docs/theory.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from noisette import _native
from noisette._spec import positive
from noisette.errors import InvalidInput

__all__ = ["MAX_DIM", "MAX_ROWS", "Grid", "spacing", "toward_zero"]

MAX_ROWS = 2**24
"""Encoded rows that one sum may have."""

MAX_DIM = 2**30
"""Coordinates of a row whose norm is known to be right, in whatever order its squares are added up."""

_FINEST = 27  # bits of a coordinate of an encoded row: with those of MOST, and two to spare, they make up 53
_FINER = 6  # cells to a scale of the noise, as a power of two: rounding adds 2e-5 to the variance
_FARTHER = 27  # cells that a release may be away from zero at least, as a power of two
_LEAST, _LARGEST = -1022, 990  # exponents below have fewer bits; above, sums leave the range of a float


def spacing(largest: float) -> float:
    """The step of the grid that encoded rows lie on, where no coordinate exceeds `largest`: a power of two.

    >>> spacing(1.0) == 2.0**-27
    True
    """
    return math.ldexp(1.0, max(_LEAST, _exponent(largest) - _FINEST))


def toward_zero(rows: torch.Tensor, step: float) -> torch.Tensor:
    """`rows`, float64, rounded toward zero to multiples of a power of two: they stay within their image.

    >>> toward_zero(torch.tensor([[0.7, -1.3]]).double(), 0.25)
    tensor([[ 0.5000, -1.2500]], dtype=torch.float64)
    """
    return torch.trunc(rows / step) * step


@dataclass(frozen=True)
class Grid:
    """Where the sum and the release of a mechanism lie: all of it public, and powers of two.

    Encoded rows are multiples of `fine`, and `MAX_ROWS` of them add up without rounding, in whatever order, to no more
    than `bound` in a coordinate. Releases are multiples of `coarse`, a 64th to a 128th of the noise's scale unless that
    is less than `fine`, within +-`reach`.

    >>> grid = Grid.of(largest=1.0, scale=1.0)
    >>> grid.release_quantum, grid.clamp
    (0.015625, 33554432.0)
    """

    sum_quantum: float
    release_quantum: float
    max_sum: float
    clamp: float

    @classmethod
    def of(cls, largest: float, scale: float) -> Grid:
        """The grid for encoded coordinates within +-`largest` and noise of this `scale`."""
        largest, scale = positive("largest", largest), positive("scale", scale)
        top, cell = _exponent(largest), _exponent(scale, below=True) - _FINER
        if max(top, cell) > _LARGEST:
            raise InvalidInput("the sum or its noise can be larger than any float.", hint="use smaller units")
        fine, bound = spacing(largest), math.ldexp(MAX_ROWS, top)
        coarse = max(fine, math.ldexp(1.0, max(_LEAST, cell)))
        return cls(fine, coarse, bound, max(2 * bound, math.ldexp(coarse, _FARTHER)))

    def add_noise(self, total: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """`total` (d,) with `noise` (d,), on the coarse grid within +-`reach`; overwrites `noise`.

        Whole cells of the total are added as whole numbers, without rounding, so that only its rest, less than a cell,
        meets the noise in floats: that rounds by the size of the noise, whatever the total is. Had nothing been
        rounded there, this would be a function of total plus noise alone. Noise that is cut off at `reach` plus
        `bound` leads beyond `reach` from whatever total.
        """
        most, end, isa = self.clamp + self.max_sum, self.clamp / self.release_quantum, _native.variant()
        if isa is not None and noise.device.type == "cpu":
            _native.native.add_noise(
                total, noise, self.release_quantum, most, end, isa
            )  # the same, bit by bit, in one pass
            return noise
        cells = torch.floor(total / self.release_quantum)
        noise.clamp_(-most, most).add_(total - cells * self.release_quantum).mul_(1 / self.release_quantum).round_()
        return noise.add_(cells).clamp_(-end, end).mul_(self.release_quantum)


def _exponent(value: float, *, below: bool = False) -> int:
    """The e with 2**e at least `value`, or, from `below`, at most."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if below or mantissa == 0.5 else exponent
