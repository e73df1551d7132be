"""The paper's equation 3: replace every coordinate by the profile's value at its rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._native import cpu
from noisette.encoders._rank_based import SortedProfile
from noisette.encoders.profiles import PaperGaussian


@dataclass(frozen=True)
class Snap(SortedProfile):
    """Like `Ranked`, but each coordinate becomes its sign times psi[t]: small gradients get full length too.

    >>> Snap(dim=2).encode(torch.tensor([[1e-9, -1e-3]])).sign()
    tensor([[ 1., -1.]], dtype=torch.float64)
    """

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(dim=50), cls(dim=50, profiles=PaperGaussian(n=20)), cls(dim=1, radius=2.0)

    def _bounded(self, rows: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        return rows.sign() * bounds

    def kernel(self) -> cpu.Kernel | None:
        return cpu.rank_kernel("snap", self.blocks, self.quantum)
