"""Patch features of patch features: filters of filters, for corners, curves and textures. All are learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._spec import real, whole
from noisette.app.features._patch_responses import Responses, mirrored_means, patches_of
from noisette.app.features.base import Features, principal
from noisette.errors import InvalidInput

__all__ = ["PatchLayer", "TwoLayers"]

_REACH = 3
"""Places a side of a patch of the second layer."""


@dataclass(frozen=True)
class TwoLayers(Features):
    """Responses to `second` filters of 3x3 places of a map, whose `channels` sum up those to `first` filters.

    The first layer's filters are those of `Patches`, `size` pixels a side. Responses beyond `threshold`, of either sign
    for itself, are averaged over about 3x3 places, every other place is kept, and the square root is taken; what is
    left of that are the first principal axes, half whitened. The second layer is `Patches` once more, on that map.
    Filters of both layers come in mirrored pairs, so features know no left and right.

    >>> TwoLayers(first=8, size=3, channels=6, second=10, grid=2, axes=9, count=20).fit((3, 14, 14)).shape
    (9,)
    """

    first: int = 200
    size: int = 6
    channels: int = 60
    second: int = 2000
    grid: int = 3
    threshold: float = 0.5
    group: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("first", 2), ("second", 2), ("size", 2), ("grid", 1), ("group", 1)):
            self._set(**{name: whole(name, getattr(self, name), least=least)})
        for filters in (self.first, self.second):
            if filters % 2:
                raise InvalidInput(f"{filters} filters do not make pairs.", hint="give an even number of filters")
        self._set(channels=whole("channels", self.channels, least=1, most=2 * self.first))
        self._set(threshold=real("threshold", self.threshold))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(first=8, size=3, channels=6, second=10, axes=9, count=20),
            cls(first=4, size=4, channels=5, second=6, grid=2, group=4, axes=5, count=20),
            cls(first=4, size=4, channels=5, second=8, grid=2, axes=3, count=20, maps=True),
        )

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        if min(shape[1:]) < self.size + 2 * (self.grid + _REACH):
            raise InvalidInput(
                f"images of {shape[1]}x{shape[2]} pixels are too small for two layers.",
                hint="use smaller patches or a coarser grid",
            )
        responses = Responses(
            self.channels, self.second, _REACH, self.grid, self.threshold, self.group, self.maps, centred=True
        )
        return nn.Sequential(PatchLayer(shape[0], self.first, self.size, self.channels, self.threshold), responses)

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        assert isinstance(raw, nn.Sequential)
        maps, responses = raw
        assert isinstance(maps, PatchLayer)
        maps.learn(pictures, self.seed)
        filters = mirrored_means(maps(pictures), self.second, _REACH, self.seed, maps.parity)
        responses.get_buffer("filters").copy_(filters)


class PatchLayer(nn.Module):
    """A layer: images, or `centred` maps, (N, C, H, W) to maps (N, channels, h, w) of responses to filters.

    `axes` (channels, 2 * filters) and `mean` are those of the square roots of both signs' responses; `parity`
    (channels,) is 1 for those that are the same for a filter and its mirror image, -1 for those that are opposite.
    """

    filters: Tensor
    mean: Tensor
    axes: Tensor
    parity: Tensor

    def __init__(
        self, colours: int, filters: int, size: int, channels: int, threshold: float, centred: bool = False
    ) -> None:
        super().__init__()
        self._threshold, self._centred = threshold, centred
        self.register_buffer("filters", torch.zeros(filters, colours, size, size))
        self.register_buffer("mean", torch.zeros(2 * filters))
        self.register_buffer("axes", torch.zeros(channels, 2 * filters))
        self.register_buffer("parity", torch.ones(channels))

    def extra_repr(self) -> str:
        return f"threshold={self._threshold}, centred={self._centred}"

    def learn(self, pictures: Tensor, seed: int, parity: Tensor | None = None, count: int = 500) -> None:
        """The filters from `pictures` (N, C, H, W), then the axes of responses in `count` of them.

        `parity` (C,) is that of the layer below, whose maps are the pictures.
        """
        first, _, size, _ = self.filters.shape
        self.filters.copy_(mirrored_means(pictures, first, size, seed, parity))
        rows = torch.cat([self._pooled(picture[None]).flatten(0, 1) for picture in pictures[:count]])
        # a filter and its mirror image, of either sign: their sum has parity 1, their difference -1
        pairs = rows.view(len(rows), 2, 2, first // 2)
        even, odd = (pairs[:, :, 0] + pairs[:, :, 1]) / 2**0.5, (pairs[:, :, 0] - pairs[:, :, 1]) / 2**0.5
        mean = even.mean(dim=0).view(1, 2, 1, -1).expand(1, 2, 2, -1) / 2**0.5
        self.mean.copy_(mean.reshape(-1))
        found = []
        for part, sign in ((even - even.mean(dim=0), 1.0), (odd, -1.0)):
            axes, variances = principal(part.flatten(1), first)
            pair = axes.T.view(first, 2, 1, -1) / 2**0.5
            found.append((torch.cat([pair, sign * pair], dim=2).flatten(1), variances, torch.full((first,), sign)))
        axes, variances, parity = (torch.cat(both) for both in zip(*found, strict=True))
        order = variances.argsort(descending=True)[: len(self.axes)]
        top = variances[order]
        self.axes.copy_(axes[order] * (top * top[0]).pow(-0.25)[:, None])
        self.parity.copy_(parity[order])

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([self._channels(image[None]) for image in images])

    def _channels(self, image: Tensor) -> Tensor:
        pooled = self._pooled(image)
        return ((pooled - self.mean) @ self.axes.T).permute(2, 0, 1)

    def _pooled(self, image: Tensor) -> Tensor:
        """Square roots (h, w, 2 * first) of the averages of both signs' responses, of an image (1, C, H, W)."""
        first, _, size, _ = self.filters.shape
        sides = [side - size + 1 for side in image.shape[2:]]
        over = F.softshrink(patches_of(image, size, self._centred) @ self.filters.flatten(1).T, self._threshold)
        # every other place, of windows that reach as far to the left as to the right
        windows = [4 - side % 2 for side in sides]

        def pooled(maps: Tensor) -> Tensor:
            there = maps.view(1, *sides, first).permute(0, 3, 1, 2)
            return F.avg_pool2d(there, windows, stride=2)[0].permute(1, 2, 0)

        signed, both = pooled(over), pooled(over.abs_())
        return (torch.cat([both + signed, both - signed], dim=2) / 2).clamp(min=0).sqrt()
