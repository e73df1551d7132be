"""Scattering is held to sums over pixels, written from the definition: no Fourier transform, no torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from noisette.app.features.scattering import morlet, scatter
from tests.support.helpers import refused


def wave(y: float, x: float, scale: int, angle: float, slant: float, mean: complex) -> complex:
    """A Morlet wavelet at one point of the plane; `mean` times its envelope is taken off."""
    width, frequency = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    u, v = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
    envelope = math.exp(-(u * u + slant * slant * v * v) / (2 * width * width))
    swing = complex(math.cos(frequency * u), math.sin(frequency * u))
    return (swing - mean) * envelope * slant / (2 * math.pi * width**2)


def kernel(size: int, step: int, scale: int, angle: float, slant: float) -> np.ndarray:
    """The wavelet summed over all copies of a torus of `size` pixels, at every `step`-th of them."""
    reach = range(-2 * size, 3 * size)
    plain = sum(wave(y, x, scale, angle, slant, 0) for y in reach for x in reach)
    bells = sum(abs(wave(y, x, scale, angle, slant, 0)) for y in reach for x in reach)
    grid = np.zeros((size, size), complex)
    for y in reach:
        for x in reach:
            grid[y % size, x % size] += wave(y, x, scale, angle, slant, plain / bells)
    return grid[::step, ::step] * step**2


def convolved(plane: np.ndarray, filtered: np.ndarray, step: int) -> np.ndarray:
    """The circular convolution at every `step`-th pixel, one sum over all pixels for each."""
    size = len(plane)
    out = np.zeros((size // step, size // step), complex)
    for y in range(0, size, step):
        for x in range(0, size, step):
            rows, columns = (y - np.arange(size)) % size, (x - np.arange(size)) % size
            out[y // step, x // step] = np.sum(plane * filtered[np.ix_(rows, columns)])
    return out


def smooth(plane: np.ndarray, size: int, resolution: int, scales: int, kept: int) -> np.ndarray:
    """The average under a Gaussian on the torus of `size` full pixels, at the `kept` places inside the margins."""
    step, width = 2**scales, 0.8 * 2 ** (scales - 1)
    out = np.zeros((kept, kept))
    stride = 2**resolution
    for j in range(kept):
        for i in range(kept):
            for y in range(len(plane)):
                for x in range(len(plane)):
                    dy, dx = (j + 1) * step - y * stride, (i + 1) * step - x * stride
                    bell = sum(
                        math.exp(-((dy + a * size) ** 2 + (dx + b * size) ** 2) / (2 * width**2))
                        for a in (-1, 0, 1)
                        for b in (-1, 0, 1)
                    )
                    out[j, i] += plane[y, x] * bell / (2 * math.pi * width**2) * stride**2
    return out


def by_definition(image: np.ndarray, scales: int, angles: int) -> np.ndarray:
    step, side = 2**scales, len(image)
    padded = np.pad(image, step, mode="reflect")
    size, kept = len(padded), side // step
    turns = [math.pi * turn / angles for turn in range(angles)]
    found, deeper = [smooth(padded, size, 0, scales, kept)], []
    for first in range(scales):
        moduli = [np.abs(convolved(padded, kernel(size, 1, first, turn, 4 / angles), 2**first)) for turn in turns]
        found += [smooth(modulus, size, first, scales, kept) for modulus in moduli]
        for modulus in moduli:
            for second in range(first + 1, scales):
                for turn in turns:
                    inner = kernel(size, 2**first, second, turn, 4 / angles)
                    pair = np.abs(convolved(modulus, inner, 2 ** (second - first)))
                    deeper.append(smooth(pair, size, second, scales, kept))
    return np.stack(found + deeper)


@pytest.mark.parametrize(("scales", "angles"), [(1, 2), (2, 2)])
def test_it_is_what_the_definition_says(scales: int, angles: int) -> None:
    image = np.random.default_rng(0).random((8, 8))
    found = scatter(torch.from_numpy(image)[None, None], scales, angles)[0].numpy()
    assert np.allclose(found, by_definition(image, scales, angles), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "expected"), [((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 8, 8)), ((1, 9, 14), (81, 3, 4))]
)
def test_sizes(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert scatter(torch.rand(2, *shape)).shape == (2, *expected)


def test_an_image_and_a_channel_touch_no_other() -> None:
    images = torch.rand(3, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    together = scatter(images)
    for i in range(3):
        alone = [scatter(images[i : i + 1, c : c + 1]) for c in range(2)]
        assert torch.allclose(together[i : i + 1], torch.cat(alone, dim=1), atol=1e-6)


def test_angles_are_where_they_should_be() -> None:
    lines = torch.zeros(1, 1, 32, 32)
    lines[..., ::3, :] = 1.0  # frequency along the rows' direction only
    first = scatter(lines, scales=2, angles=8)[0, 1:9].sum(dim=(1, 2))
    assert int(first.argmax()) == 4, "the wavelet at a right angle answers most"


def test_a_wavelet_sees_no_brightness() -> None:
    assert abs(morlet((24, 24), 1, 0.3, 0.5).sum()) < 1e-12
    flat = scatter(torch.full((1, 1, 28, 28), 0.7))
    assert torch.allclose(flat[:, 0], torch.tensor(0.7), atol=1e-2)
    assert float(flat[:, 1:].abs().max()) < 1e-5


@pytest.mark.parametrize(("size", "scales", "angles"), [(4, 2, 8), (28, 0, 8), (28, 2, 0), (8, 3, 8)])
def test_what_makes_no_sense_is_refused(size: int, scales: int, angles: int) -> None:
    with refused():
        scatter(torch.rand(1, 1, size, size), scales, angles)
