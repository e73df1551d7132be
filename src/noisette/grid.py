"""Releases on a public grid, so that the low bits of a float say nothing about the sum behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from noisette.errors import InvalidInput
from noisette.spec import positive

__all__ = ["Grid"]

_BITS = 52  # whole numbers up to 2 ** 53 add without rounding in float64; one bit is spare
_LEAST = -1022  # exponents below have fewer bits
_FINER = 6  # cells to a scale of the noise, as a power of two: rounding adds 2e-5 to the variance


@dataclass(frozen=True)
class Grid:
    """Where sums and releases lie: all of it public, and powers of two.

    Encoded rows are multiples of `fine`, and so few that every sum of them is exact, in whatever order. Releases are
    multiples of `coarse` within +-`reach`, itself one of them. `bound` is how large a coordinate of the sum can be.

    >>> Grid.of(scale=1.0, bound=1024.0, reach=1024.0).coarse
    0.015625
    """

    fine: float
    coarse: float
    bound: float
    reach: float

    @classmethod
    def of(cls, scale: float, bound: float, reach: float) -> Grid:
        """The grid for noise of this `scale` on sums within +-`bound`, released within +-`reach`."""
        scale, bound, reach = positive("scale", scale), positive("bound", bound), positive("reach", reach)
        cell = math.ldexp(1.0, max(_LEAST, math.frexp(scale)[1] - 1 - _FINER))
        largest = reach + cell + 2 * bound
        if not math.isfinite(largest):
            raise InvalidInput("the sum can be larger than any float.", hint="use smaller units")
        fine = math.ldexp(1.0, max(_LEAST, math.frexp(largest)[1] - _BITS))
        coarse = max(fine, cell)
        return cls(fine, coarse, bound, math.ceil(reach / coarse) * coarse)

    def rows(self, encoded: torch.Tensor) -> torch.Tensor:
        """Encoded rows (B, d), float64, rounded toward zero to multiples of `fine`: they stay within their image.

        >>> Grid.of(scale=1.0, bound=2.0**48, reach=2.0**48).rows(torch.tensor([[0.7, -1.3]]).double())
        tensor([[ 0.5000, -1.2500]], dtype=torch.float64)
        """
        return torch.trunc(encoded / self.fine) * self.fine

    def noised(self, total: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """`total` (d,), a sum of `rows`, with `noise` (d,), on the coarse grid within +-`reach`.

        Both are multiples of `fine` when they are added, so that the sum is exact. With noise drawn from the ideal law
        this is a function of the ideal release alone: it says no more than that. Noise that is cut off at `reach` plus
        `bound` leads beyond `reach` from whatever sum.
        """
        most = self.reach + self.bound
        noise = torch.round(noise.clamp(-most, most) / self.fine) * self.fine
        return torch.round((total + noise).clamp(-self.reach, self.reach) / self.coarse) * self.coarse
