"""Sums and releases on public grids, so that what is proved of real numbers holds for floats: docs/theory.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from noisette.spec import positive

__all__ = ["MOST", "Grid", "spacing", "toward_zero"]

MOST = 2**24
"""Encoded rows that one sum may have."""

_FINEST = 27  # bits of a coordinate of an encoded row: with MOST rows, and room for the noise, they make up 53
_FINER = 6  # cells to a scale of the noise, as a power of two: rounding adds 2e-5 to the variance
_LEAST = -1022  # exponents below have fewer bits


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

    Encoded rows are multiples of `fine`, and `MOST` of them add up without rounding, in whatever order. Releases are
    multiples of `coarse` within +-`reach`. `bound` is how large a coordinate of the sum can be. Grids that `fit` have
    `coarse` cells of a 64th to a 128th of the noise's scale, and a `reach` of at least 16 scales.

    >>> grid = Grid.of(largest=1.0, scale=1.0)
    >>> grid.coarse, grid.reach, grid.fits
    (0.015625, 33554432.0, True)
    """

    fine: float
    coarse: float
    bound: float
    reach: float
    fits: bool

    @classmethod
    def of(cls, largest: float, scale: float) -> Grid:
        """The grid for encoded coordinates within +-`largest` and noise of this `scale`."""
        largest, scale = positive("largest", largest), positive("scale", scale)
        fine = spacing(largest)
        bound = min(math.ldexp(MOST, _exponent(largest)), 2.0**1020)
        cell = math.ldexp(1.0, max(_LEAST, _exponent(scale, below=True) - _FINER))
        coarse, reach = min(max(fine, cell), bound), 2 * bound
        return cls(fine, coarse, bound, reach, fits=coarse == cell and 16 * scale <= reach and fine > 2.0**_LEAST)

    def noised(self, total: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """`total` (d,) with `noise` (d,), on the coarse grid within +-`reach`; overwrites `noise`.

        Both are multiples of `fine` when they are added, so that the sum is exact. With noise drawn from the ideal law
        this is a function of the ideal release alone: it says no more than that. Noise that is cut off at `reach` plus
        `bound` leads beyond `reach` from whatever sum.
        """
        most = self.reach + self.bound
        noise.clamp_(-most, most).mul_(1 / self.fine).round_()
        noise.add_((total / self.fine).round_()).mul_(self.fine)
        return noise.clamp_(-self.reach, self.reach).mul_(1 / self.coarse).round_().mul_(self.coarse)


def _exponent(value: float, *, below: bool = False) -> int:
    """The e with 2**e at least `value`, or, from `below`, at most."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if below or mantissa == 0.5 else exponent
