"""The scattering transform: averages of wavelet moduli, twice over. Fixed filters, so it has seen no data at all."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisette._spec import whole
from noisette.app.features.base import Features
from noisette.errors import InvalidInput

__all__ = ["Scattering", "morlet", "scatter"]

Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class Scattering(Features):
    """Scattering coefficients with `scales` and `angles`, normalised per example in groups of `group` channels.

    >>> Scattering(pictures="strokes").scales
    2
    """

    scales: int = 2
    angles: int = 8
    group: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(**{name: whole(name, getattr(self, name), least=1) for name in ("scales", "angles", "group")})

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(pictures="strokes", axes=10, count=20),
            cls(axes=10, count=20, scales=1, angles=4, group=5),
            cls(axes=3, count=20, scales=1, angles=4, group=5, maps=True),
        )

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:  # noqa: ARG002 - its filters come in any size
        return _Scattered(self)


class _Scattered(nn.Module):
    def __init__(self, spec: Scattering) -> None:
        super().__init__()
        self._spec = spec

    def extra_repr(self) -> str:
        spec = self._spec
        return f"scales={spec.scales}, angles={spec.angles}, group={spec.group}, maps={spec.maps}"

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) to (N, D), or to maps."""
        spec = self._spec
        found = scatter(images, spec.scales, spec.angles)
        if found.shape[1] % spec.group:
            raise InvalidInput(
                f"{found.shape[1]} channels do not fall into groups of {spec.group}.", hint="use groups of 1 or 3"
            )
        maps = nn.functional.group_norm(found, found.shape[1] // spec.group)
        return maps if spec.maps else maps.flatten(1)


def scatter(images: Tensor, scales: int = 2, angles: int = 8) -> Tensor:
    """Scattering coefficients of `images` (N, C, H, W), float32 (N, C * K, H / 2**scales, W / 2**scales).

    K is 1 + scales * angles + angles**2 * scales * (scales - 1) / 2 for each channel: the average, the averaged modulus
    of every wavelet, and of every wavelet on a finer wavelet's modulus. Averages are over windows of about 2**scales
    pixels; the border is mirrored. An image touches no other.

    >>> scatter(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 81, 7, 7])
    """
    whole("scales", scales, least=1)
    whole("angles", angles, least=1)
    step = 2**scales
    count, channels, height, width = images.shape
    if min(height, width) <= step:
        raise InvalidInput(
            f"images of {height}x{width} pixels are too small for {scales} scales.", hint="use fewer scales"
        )
    sizes = tuple(_padded_size(size, step) for size in (height, width))
    planes = _mirrored(images.reshape(count * channels, height, width).float(), sizes, step)
    bank = _bank(sizes, scales, angles)
    lows = [_averaging(size, real, step, scales) for size, real in zip(sizes, (height, width), strict=True)]

    def average(moduli: Tensor, resolution: int) -> Tensor:
        down, across = (low[resolution] for low in lows)
        return down @ moduli @ across.T

    found = [average(planes, 0).unsqueeze(1)]
    deeper = []
    spectrum = torch.fft.fft2(planes)
    for first in range(scales):
        moduli = _moduli(spectrum.unsqueeze(1), bank[first, 0], 2**first)
        found.append(average(moduli, first))
        inner = torch.fft.fft2(moduli) if first + 1 < scales else None
        for second in range(first + 1, scales):
            assert inner is not None
            pairs = _moduli(inner.unsqueeze(2), bank[second, first], 2 ** (second - first))
            deeper.append(average(pairs, second).flatten(1, 2))
    return torch.cat(found + deeper, dim=1).flatten(0, 1).reshape(count, -1, *found[0].shape[2:])


def morlet(size: tuple[int, int], scale: int, angle: float, slant: float) -> Complex:
    """A Morlet wavelet of width 0.8 * 2**scale and frequency 3/4 pi / 2**scale on a periodic grid (H, W).

    It is a wave under an oval Gaussian, `slant` being its width along the wave over that across, minus as much of the
    Gaussian as makes its mean zero.

    >>> bool(abs(morlet((32, 32), 1, 0.0, 0.5).sum()) < 1e-12)
    True
    """
    width, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    wave, envelope = np.zeros(size, complex), np.zeros(size, complex)
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]].astype(float)
    for y in range(-2, 3):  # the tails beyond two periods are below any rounding
        for x in range(-2, 3):
            down, across = rows + y * size[0], columns + x * size[1]
            along = across * math.cos(angle) + down * math.sin(angle)
            beside = -across * math.sin(angle) + down * math.cos(angle)
            bell = np.exp(-(along**2 + (slant * beside) ** 2) / (2 * width**2))
            envelope += bell
            wave += bell * np.exp(1j * frequency * along)
    norm = 2 * math.pi * width**2 / slant
    wavelet: Complex = (wave - wave.sum() / envelope.sum() * envelope) / norm
    return wavelet


def _padded_size(size: int, step: int) -> int:
    return (math.ceil(size / step) + 2) * step


def _mirrored(planes: Tensor, sizes: tuple[int, ...], step: int) -> Tensor:
    height, width = planes.shape[1:]
    padding = (step, sizes[1] - width - step, step, sizes[0] - height - step)
    return torch.nn.functional.pad(planes.unsqueeze(1), padding, mode="reflect").squeeze(1)


def _moduli(spectrum: Tensor, filters: Tensor, stride: int) -> Tensor:
    """|x * filter| at every `stride`-th pixel: folding the spectrum is what sampling in space means."""
    height, width = (size // stride for size in filters.shape[-2:])
    tiles = [
        (..., slice(down * height, (down + 1) * height), slice(across * width, (across + 1) * width))
        for down in range(stride)
        for across in range(stride)
    ]
    folded = spectrum[tiles[0]] * filters[tiles[0]]
    for tile in tiles[1:]:
        folded.addcmul_(spectrum[tile], filters[tile])
    moduli: Tensor = torch.fft.ifft2(folded.div_(stride**2)).abs()
    return moduli


@functools.lru_cache(maxsize=4)
def _bank(sizes: tuple[int, int], scales: int, angles: int) -> dict[tuple[int, int], Tensor]:
    """Spectra (angles, h, w) of the wavelets of scale j on a grid where every 2**r-th pixel is left, by (j, r)."""
    bank = {}
    for scale in range(scales):
        waves = np.stack([morlet(sizes, scale, math.pi * turn / angles, 4 / angles) for turn in range(angles)])
        for coarse in range(scale + 1):
            stride = 2**coarse
            sampled = waves[:, ::stride, ::stride] * stride**2
            bank[scale, coarse] = torch.from_numpy(np.fft.fft2(sampled)).to(torch.complex64)
    return bank


@functools.lru_cache(maxsize=8)
def _averaging(size: int, real: int, step: int, scales: int) -> list[Tensor]:
    """For each resolution a matrix (out, size / 2**r) that averages under a Gaussian and keeps every step-th pixel."""
    width = 0.8 * 2 ** (scales - 1)
    grid = np.arange(size)
    bell = sum(np.exp(-((grid + period * size) ** 2) / (2 * width**2)) for period in range(-2, 3))
    bell = bell / (math.sqrt(2 * math.pi) * width)
    centres = step + step * np.arange(math.ceil(real / step))
    found = []
    for coarse in range(scales):
        stride = 2**coarse
        weights = bell[(centres[:, None] - grid[None, ::stride]) % size] * stride
        found.append(torch.from_numpy(weights).float())
    return found
