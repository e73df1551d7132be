"""L2 clipping: the encoder of DPSGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._native import cpu, reference
from noisette.encoders.base import Encoder, Image


@dataclass(frozen=True)
class L2(Encoder):
    """Scale each gradient down to norm `radius` where it is longer. Its image is a ball, known for Gaussian noise only.

    >>> L2(dim=2).encode(torch.tensor([[0.0, 9.0]])).round(decimals=6)
    tensor([[0., 1.]], dtype=torch.float64)
    """

    dim: int | None = None
    radius: float = 1.0
    micro_batch: int = 1

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(dim=50), cls(dim=50, radius=0.1)

    @property
    def _image_of_one(self) -> Image:
        return Image(norm=self.radius)

    @property
    def jumps(self) -> bool:
        return False

    def _encode(self, rows: torch.Tensor) -> torch.Tensor:
        return reference.clip_norm(rows, self.radius)

    def kernel(self) -> cpu.Kernel | None:
        return cpu.l2_kernel(self.radius, self.quantum)
