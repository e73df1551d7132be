"""The paper's Algorithm 2: clip every coordinate at the profile's value at its rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._native import cpu
from noisette.encoders._rank_based import SortedProfile
from noisette.encoders.profiles import Blocks, HalfNormal, PaperGaussian, Tails


@dataclass(frozen=True)
class Ranked(SortedProfile):
    """Rank coordinates by magnitude, choose the profile of the highest cosine, clip rank t to +-psi[t].

    >>> Ranked(dim=4).encode(torch.tensor([[9.0, -9.0, 0.0, 0.001]])).abs().sum() <= 2
    tensor(True)
    """

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        families = (
            HalfNormal(),
            PaperGaussian(n=20),
            Tails(),
            Blocks(dims=(30, 20), shares=(0.6, 0.3), profiles=Tails()),
        )
        return (*(cls(dim=50, profiles=family) for family in families), cls(dim=50, radius=0.1), cls(dim=1))

    def _bounded(self, rows: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        return torch.minimum(torch.maximum(rows, -bounds), bounds)

    def kernel(self) -> cpu.Kernel | None:
        return cpu.rank_kernel("ranked", self.blocks, self.quantum)
