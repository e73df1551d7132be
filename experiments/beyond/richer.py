"""Features and made-up pictures that are screened beside those of the package: what does not win stays here.

Imported by screen.py, so that its `--features` can name them: `ThreeLayers(...)`, and `pictures='textures'`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from noisette.app.features import Features
from noisette.app.features._patch_responses import Responses, mirrored_means
from noisette.app.features.synthetic_images import PICTURES, dead_leaves
from noisette.app.features.two_layer_patches import PatchLayer


@dataclass(frozen=True)
class ThreeLayers(Features):
    """`TwoLayers` with one layer more: responses to `third` filters of 3x3 places of the second layer's maps."""

    first: int = 100
    size: int = 4
    second: int = 400
    channels: int = 60
    third: int = 1600
    grid: int = 3
    threshold: float = 0.5
    group: int = 8

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls(first=8, size=3, second=8, channels=6, third=10, grid=1, axes=9, count=20),)

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        below = PatchLayer(shape[0], self.first, self.size, self.channels, self.threshold)
        above = PatchLayer(self.channels, self.second, 3, self.channels, self.threshold, centred=True)
        responses = Responses(
            self.channels, self.third, 3, self.grid, self.threshold, self.group, self.maps, centred=True
        )
        return nn.Sequential(below, above, responses)

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        assert isinstance(raw, nn.Sequential)
        below, above, responses = raw
        assert isinstance(below, PatchLayer)
        assert isinstance(above, PatchLayer)
        below.learn(pictures, self.seed)
        maps = below(pictures)
        above.learn(maps, self.seed, below.parity)
        filters = mirrored_means(above(maps), self.third, 3, self.seed, above.parity)
        responses.get_buffer("filters").copy_(filters)


def textures(count: int, size: int, seed: int = 0) -> Tensor:
    """Dead leaves (count, 3, size, size) that have textures, stand in uneven light, and are more or less sharp.

    A texture is noise whose amplitude falls with some power of the frequency, along some angle; it is as strong as
    another picture of leaves is bright at that place. Light is noise that falls with the square of the frequency.
    """
    generator = np.random.default_rng([seed, 1])
    leaves = dead_leaves(count, size, seed).numpy()
    strength = dead_leaves(count, size, seed + 1).numpy().mean(axis=1)
    down, across = np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :]
    plain = np.sqrt(down**2 + across**2 + size**-2.0)
    for picture, much in zip(leaves, strength, strict=True):
        turn, slant = generator.uniform(0, np.pi), np.exp(generator.uniform(0, 1.2))
        along = across * np.cos(turn) + down * np.sin(turn)
        beside = down * np.cos(turn) - across * np.sin(turn)
        slanted = np.sqrt((along * slant) ** 2 + (beside / slant) ** 2 + size**-2.0)
        texture = _noise(generator, slanted ** -generator.uniform(0.3, 1.5))
        light = _noise(generator, plain**-2.0)
        lit = (picture + 0.25 * much * texture) * np.exp(0.2 * light)
        blur = np.exp(-2 * (np.pi * plain * generator.uniform(0, 0.9)) ** 2)
        picture[:] = np.clip(np.fft.ifft2(np.fft.fft2(lit) * blur).real, 0, 1)
    return torch.from_numpy(leaves)


def _noise(generator: np.random.Generator, amplitudes: np.ndarray) -> np.ndarray:
    """Noise (size, size) of variance 1 with such amplitudes."""
    found = np.fft.ifft2(np.fft.fft2(generator.standard_normal(amplitudes.shape)) * amplitudes).real
    return np.asarray((found - found.mean()) / found.std())


PICTURES["textures"] = textures
