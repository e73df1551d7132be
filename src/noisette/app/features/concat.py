"""Several features of one image beside each other, each with its weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from noisette._spec import entries, positive
from noisette.app.features.base import FeatureMap, Features
from noisette.app.features.patches import Patches
from noisette.app.features.scattering import Scattering
from noisette.errors import InvalidInput

__all__ = ["ConcatMaps", "Joined"]


@dataclass(frozen=True)
class Joined(Features):
    """The features of all `parts`, each of length one times its weight, seen along common axes.

    Each part learns from its own made-up pictures; the common axes are those of the `pictures` here.

    >>> both = Joined(parts=(Patches(filters=8, size=3, axes=9, count=20), Scattering(axes=9, count=20)),
    ...               weights=(1.0, 0.5), axes=10, count=20)
    >>> both.fit((3, 12, 12))(torch.rand(2, 3, 12, 12)).shape
    torch.Size([2, 10])
    """

    parts: tuple[Features, ...] = (Patches(), Scattering())
    weights: tuple[float, ...] = (1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = entries("parts", self.parts)
        weights = tuple(positive("weights", weight) for weight in entries("weights", self.weights))
        if len(parts) != len(weights) or not parts:
            raise InvalidInput(f"{len(parts)} parts have {len(weights)} weights.", hint="give each part one weight")
        for part in parts:
            if not isinstance(part, Features) or part.maps or self.maps:
                raise InvalidInput(f"{part!r} are not features that can be joined.", hint="join features without maps")
        self._set(parts=parts, weights=weights)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        patches = Patches(filters=8, size=3, axes=9, count=20)
        return (
            cls(parts=(patches, Scattering(axes=8, count=20)), weights=(1.0, 0.5), axes=10, count=20),
            cls(parts=(patches, patches.replace(shrink=2, grid=2)), weights=(0.8, 0.7), axes=5, count=20, seed=3),
        )

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        return ConcatMaps([part.empty(shape) for part in self.parts], self.weights)

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        assert isinstance(raw, ConcatMaps)
        for part, fixed in zip(self.parts, raw.members, strict=True):
            fixed.load_state_dict(part.fit(tuple(pictures.shape[1:])).state_dict())


class ConcatMaps(nn.Module):
    """Maps of images whose features stand beside each other, each times its weight."""

    def __init__(self, parts: list[FeatureMap], weights: tuple[float, ...]) -> None:
        super().__init__()
        self.parts, self._weights = nn.ModuleList(parts), weights

    def extra_repr(self) -> str:
        return f"weights={self._weights}, whitening={[part.whitening for part in self.members]}"

    @property
    def members(self) -> list[FeatureMap]:
        """The maps, in the order of their weights."""
        return [part for part in self.parts if isinstance(part, FeatureMap)]

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) to all features of theirs (N, D)."""
        return self.beside([part(images) for part in self.members])

    def beside(self, found: list[Tensor]) -> Tensor:
        """The features of all parts, (N, K) each, times the weights: (N, D)."""
        return torch.cat([weight * each for weight, each in zip(self._weights, found, strict=True)], dim=1)
