"""A profile for every block of coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from noisette._spec import entries, positive, whole
from noisette.encoders.profiles.base import Profiles, ProfileSet
from noisette.encoders.profiles.quantiles import HalfNormal, Tails
from noisette.errors import InvalidInput

_SLACK = 2.0**-48  # keeps the sum of squared norms below 1 through the rounding of every share


@dataclass(frozen=True)
class Blocks(Profiles):
    """One profile per block of consecutive coordinates, say a parameter tensor, each with a share of the squared norm.

    Free in accounting: the bound runs over all coordinates, and the shares sum to at most 1. Shares default to each
    block's part of the dimension.

    >>> [block.dim for block in Blocks(dims=(30, 20)).build(50)]
    [30, 20]
    """

    dims: tuple[int, ...]
    shares: tuple[float, ...] | None = None
    profiles: Profiles = HalfNormal()

    def __post_init__(self) -> None:
        self._set(dims=tuple(whole("block dim", dim, least=1) for dim in entries("dims", self.dims)))
        if not isinstance(self.profiles, Profiles):
            raise InvalidInput(
                f"profiles is {self.profiles!r}, not a profile family.", hint="write for example HalfNormal()"
            )
        if not self.dims:
            raise InvalidInput("dims is empty.", hint="give the number of coordinates of each block")
        if self.shares is not None:
            self._set(shares=tuple(positive("share", share) for share in entries("shares", self.shares)))
            if len(self.shares) != len(self.dims) or math.fsum(self.shares) > 1:
                raise InvalidInput(
                    f"shares {self.shares} are not one for each block with a sum of at most 1.",
                    hint="give as many shares as dims, or none",
                )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(dims=(30, 20)), cls(dims=(10, 40), shares=(0.5, 0.25), profiles=Tails())

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if dim != sum(self.dims):
            raise InvalidInput(
                f"the blocks hold {sum(self.dims)} coordinates, the encoder {dim}.", hint="list every tensor"
            )
        shares = self.shares or tuple(size / dim * (1 - _SLACK) for size in self.dims)
        built = []
        for size, share in zip(self.dims, shares, strict=True):
            built += [part.scaled(math.sqrt(share) * (1 - _SLACK)) for part in self.profiles.build(size)]
        return tuple(built)
