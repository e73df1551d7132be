"""Patch features: how much of each of many small filters is where in an image. The filters are learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._spec import real, whole
from noisette.app.features._patch_responses import Responses, mirrored_means
from noisette.app.features.base import Features
from noisette.errors import InvalidInput

__all__ = ["Patches"]


@dataclass(frozen=True)
class Patches(Features):
    """Responses to `filters` filters of `size` pixels, in mirrored pairs, averaged on a grid of `grid` x `grid` cells.

    A patch is brought to mean 0 and deviation 1 and whitened; its response to each filter counts by as much as it
    exceeds `threshold`, positive and negative apart. The features of an image and of its mirror image are averaged,
    which costs nothing, since the mirror image only swaps the filters of a pair. At last the square root is taken.
    With `shrink` the image is first made so many times smaller, for larger things.

    >>> import torch
    >>> Patches(filters=8, size=3, axes=10, count=20).fit((3, 12, 12))(torch.rand(2, 3, 12, 12)).shape
    torch.Size([2, 10])
    """

    filters: int = 800
    size: int = 6
    grid: int = 3
    threshold: float = 0.5
    group: int = 8
    shrink: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(
            filters=whole("filters", self.filters, least=2),
            size=whole("size", self.size, least=2),
            grid=whole("grid", self.grid, least=1),
            group=whole("group", self.group, least=1),
            shrink=whole("shrink", self.shrink, least=1),
            threshold=real("threshold", self.threshold),
        )
        if self.filters % 2:
            raise InvalidInput(f"{self.filters} filters do not make pairs.", hint="give an even number of filters")

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(filters=8, size=3, axes=10, count=20),
            cls(filters=4, size=4, grid=2, group=4, axes=5, count=20),
            cls(filters=8, size=3, grid=2, axes=3, count=20, maps=True),
            cls(filters=8, size=3, grid=2, axes=5, count=20, shrink=2),
        )

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        if min(shape[1:]) // self.shrink < self.size + self.grid - 1:
            raise InvalidInput(
                f"images of {shape[1]}x{shape[2]} pixels are too small for patches of {self.size}.",
                hint="use smaller patches or a coarser grid",
            )
        responses = Responses(shape[0], self.filters, self.size, self.grid, self.threshold, self.group, self.maps)
        return nn.Sequential(nn.AvgPool2d(self.shrink), responses)

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        small = F.avg_pool2d(pictures, self.shrink)
        raw.get_buffer("1.filters").copy_(mirrored_means(small, self.filters, self.size, self.seed))
