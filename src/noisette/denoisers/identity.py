"""No denoising."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._private import Released
from noisette.denoisers.base import Denoiser, State


@dataclass(frozen=True)
class Identity(Denoiser):
    """The released vector as it is.

    >>> Identity()
    Identity()
    """

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls(),)

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        return released.values, dict(state)
