"""James-Stein shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch

from noisette._private import Released
from noisette.denoisers._moments import moment
from noisette.denoisers.base import Denoiser, State
from noisette.errors import InvalidInput
from noisette.noise import Noise


@dataclass(frozen=True)
class JamesStein(Denoiser):
    """Shrink the vector towards 0 by the positive part of 1 - (dim - 2) * variance / squared length.

    With Gaussian noise and at least three coordinates the mean square error is below that of the released vector
    whatever the gradients are; with other laws of finite variance the same holds once coordinates are many, as the
    squared length of the noise settles. The variance is that of the noise as released: in a chain, put it first.

    >>> JamesStein()
    JamesStein()
    """

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls(),)

    def _validate(self, noise: Noise, dim: int) -> None:
        if dim < 3:
            raise InvalidInput(
                f"James-Stein shrinkage needs 3 coordinates and there are {dim}.", hint="use Identity() or Score()"
            )
        if math.isinf(moment(noise, "std") ** 2):
            raise InvalidInput(
                f"the variance of {noise!r} is infinite, so there is nothing to shrink by.",
                hint="use Score(), whose variance is finite, or a noise with lighter tails",
            )

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        values = released.values
        square = float(values.square().sum())
        excess = (values.numel() - 2) * moment(released.noise, "std") ** 2
        factor = 1 - excess / square if square > excess else 0.0
        return factor * values, dict(state)
