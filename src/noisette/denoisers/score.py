"""The score denoiser: what a heavy tail loses in variance, won back coordinate by coordinate."""

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
class Score(Denoiser):
    """y -> -z'(y)/z(y) / I per coordinate, with z the density of the noise and I its Fisher information.

    For a shift well below the scale this is unbiased to first order with variance 1/I, the least that Cramer and Rao
    allow; for Gaussian noise it is the identity. It saturates: once the summed gradient of a coordinate passes
    the scale, its mean falls short of the shift (Student-t, df 9, scale 1: 1.57 at shift 2, 1.86 at 4), and for heavy
    tails it comes back towards 0. The law is that of the noise as released: in a chain, put it first.

    >>> Score()
    Score()
    """

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls(),)

    def _validate(self, noise: Noise, dim: int) -> None:  # noqa: ARG002 - any dimension will do
        if math.isinf(moment(noise, "fisher_information")):
            raise InvalidInput(
                f"the Fisher information of {noise!r} is infinite, so its score has no finite variance.",
                hint="use Kalman() or LowPass(), or a law without so sharp a peak",
            )

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        noise, values = released.noise, released.values
        scores = noise.score(values.detach().cpu().numpy()) / moment(noise, "fisher_information")
        return torch.from_numpy(scores).to(values.device), dict(state)
