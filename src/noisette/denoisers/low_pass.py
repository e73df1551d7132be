"""A low-pass filter over the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._private import Released
from noisette._spec import real
from noisette.denoisers.base import Denoiser, State
from noisette.errors import InvalidInput


@dataclass(frozen=True)
class LowPass(Denoiser):
    """Exponential moving average of the released vectors, divided by the sum of its weights.

    The variance falls to (1 - beta) / (1 + beta) of the noise after many steps, and the average lags behind by about
    beta / (1 - beta) steps. Beta 0 is no filter.

    >>> LowPass(beta=0.5)
    LowPass(beta=0.5)
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        self._set(beta=real("beta", self.beta))
        if not 0 <= self.beta < 1:
            raise InvalidInput(f"beta is {self.beta!r}, outside [0, 1).", hint="0.9 is usual, 0 means no filter")

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(beta=0.5), cls(beta=0.0)

    def _init_state(self, dim: int) -> State:
        return {"average": torch.zeros(dim, dtype=torch.float64), "step": torch.zeros((), dtype=torch.int64)}

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        values = released.values
        average = torch.lerp(state["average"].to(values.device), values, 1 - self.beta)
        step = state["step"] + 1
        weight = 1 - self.beta ** int(step)  # not yet 1 in the first steps, because the average starts from 0
        return average / weight, {"average": average, "step": step}
