"""What ranked and snapped encodings share: a profile family, chosen by rank in each block of coordinates."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from noisette._native import reference
from noisette.encoders.base import Encoder, Image
from noisette.encoders.profiles import HalfNormal, Profiles, ProfileSet, build
from noisette.errors import InvalidInput


@lru_cache(maxsize=8)
def _scaled(profiles: Profiles, dim: int, radius: float) -> tuple[ProfileSet, ...]:
    return tuple(block.scaled(radius) for block in build(profiles, dim)) if radius != 1 else build(profiles, dim)


@dataclass(frozen=True)
class SortedProfile(Encoder):
    """Bounds every coordinate by a profile's value at the rank of its magnitude."""

    dim: int | None = None
    profiles: Profiles = HalfNormal()
    radius: float = 1.0
    micro_batch: int = 1

    @abstractmethod
    def _bounded(self, rows: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        """Rows (B, d) brought within +-bounds (B, d)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.profiles, Profiles):
            raise InvalidInput(
                f"profiles is {self.profiles!r}, not a profile family.", hint="write for example HalfNormal()"
            )

    @property
    def blocks(self) -> tuple[ProfileSet, ...]:
        """The profiles of each block of coordinates, times the radius."""
        return _scaled(self.profiles, self.known_dim, self.radius)

    @property
    def _image_of_one(self) -> Image:
        longest = [float(block.norms.max()) for block in self.blocks]
        return Image(norm=float(np.nextafter(math.hypot(*longest), math.inf)), profiles=self.blocks)

    def _encode(self, rows: torch.Tensor) -> torch.Tensor:
        encoded = torch.empty_like(rows)
        start = 0
        for block in self.blocks:
            part = rows[:, start : start + block.dim]
            levels = torch.from_numpy(block.levels).to(rows.device)
            counts = torch.from_numpy(block.counts).to(rows.device)
            bounds = reference.exact_bounds(part, levels, counts)
            encoded[:, start : start + block.dim] = self._bounded(part, bounds)
            start += block.dim
        return encoded
