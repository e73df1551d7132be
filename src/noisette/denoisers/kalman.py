"""A Kalman filter of constant gain over the steps, in the manner of DiSK (Zhang et al., ICLR 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._private import Released
from noisette._spec import positive
from noisette.denoisers.base import Denoiser, State
from noisette.errors import InvalidInput


@dataclass(frozen=True)
class Kalman(Denoiser):
    """estimate = (1 - gain) * previous estimate + gain * released, from gradients taken a little ahead.

    The previous estimate is out of date by one move of the parameters. Gradients taken at
    theta + lookahead * (theta - previous theta), with lookahead (1 - gain) / gain, make up for it to first order: the
    filter then lowers the variance to gain / (2 - gain) of the noise without lagging behind. Gain 1 is no filter.

    >>> Kalman(gain=0.5).lookahead
    1.0
    """

    gain: float = 0.7

    def __post_init__(self) -> None:
        self._set(gain=positive("gain", self.gain))
        if self.gain > 1:
            raise InvalidInput(f"gain is {self.gain!r}, outside (0, 1].", hint="0.7 is usual, 1 means no filter")

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(gain=0.3), cls(gain=1.0)

    @property
    def lookahead(self) -> float:
        """Gradients are to be taken at theta + lookahead * (theta - previous theta), which are public values."""
        return (1 - self.gain) / self.gain

    def _init_state(self, dim: int) -> State:
        return {"estimate": torch.zeros(dim, dtype=torch.float64), "step": torch.zeros((), dtype=torch.int64)}

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        values = released.values
        gain = self.gain if state["step"] > 0 else 1.0
        estimate = torch.lerp(state["estimate"].to(values.device), values, gain)
        return estimate.clone(), {"estimate": estimate, "step": state["step"] + 1}
