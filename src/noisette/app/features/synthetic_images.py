"""Made-up pictures: what filters and scales are learnt from, so that no private or natural picture is needed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["PICTURES", "dead_leaves", "draw", "silhouettes", "strokes"]

_SHEET = 256  # pixels a side of the sheet that leaves fall on, before it is halved and cut


def dead_leaves(count: int, size: int, seed: int = 0) -> Tensor:
    """Pictures (count, 3, size, size) in [0, 1] of ovals and boxes that cover each other, as things in the world do.

    Radii follow r**-3, which makes the pictures look alike at every scale. They come from `seed` alone.

    >>> dead_leaves(2, 32).shape
    torch.Size([2, 3, 32, 32])
    """
    generator = np.random.default_rng(seed)
    starts = range(0, _SHEET // 2 - size + 1, max(1, size // 2))
    found: list[npt.NDArray[np.float32]] = []
    while len(found) < count:
        halved = _sheet(generator).reshape(3, _SHEET // 2, 2, _SHEET // 2, 2).mean(axis=(2, 4))
        found += [halved[:, top : top + size, left : left + size] for top in starts for left in starts]
    return torch.from_numpy(np.stack(found[:count]))


def _sheet(generator: np.random.Generator) -> npt.NDArray[np.float32]:
    """One sheet (3, _SHEET, _SHEET) that enough leaves have fallen on to cover it."""
    sheet = np.zeros((3, _SHEET, _SHEET), np.float32)
    leaves = 1200
    small, large = 4.0, 90.0
    radii = (small**-2 + (large**-2 - small**-2) * generator.random(leaves)) ** -0.5
    radii[:60] = generator.uniform(30, large, 60)  # the ground
    for radius in radii:
        sheet_y, sheet_x = generator.uniform(-20, _SHEET + 20, 2)
        turn, ratio = generator.uniform(0, math.pi), math.exp(generator.uniform(-0.8, 0.8))
        box = generator.random() < 0.5
        colour = np.clip(generator.random() + 0.15 * generator.standard_normal(3), 0, 1)
        slope = generator.normal(0, 0.15, 2) / radius
        reach = radius * max(ratio, 1 / ratio) * (math.sqrt(2) if box else 1)
        top, bottom = max(0, int(sheet_y - reach)), min(_SHEET, int(sheet_y + reach) + 2)
        left, right = max(0, int(sheet_x - reach)), min(_SHEET, int(sheet_x + reach) + 2)
        if top >= bottom or left >= right:
            continue
        down = np.arange(top, bottom, dtype=np.float32)[:, None] - sheet_y
        across = np.arange(left, right, dtype=np.float32)[None, :] - sheet_x
        along = np.abs(across * math.cos(turn) + down * math.sin(turn)) / (radius * ratio)
        beside = np.abs(down * math.cos(turn) - across * math.sin(turn)) / (radius / ratio)
        inside = np.maximum(along, beside) < 1 if box else along**2 + beside**2 < 1
        shaded = np.clip(colour[:, None, None] + (slope[0] * down + slope[1] * across)[None], 0, 1)
        part = sheet[:, top:bottom, left:right]
        np.copyto(part, shaded.astype(np.float32), where=inside[None])
    return sheet


def strokes(count: int, size: int, seed: int = 0) -> Tensor:
    """Pictures (count, 1, size, size) in [0, 1] of one to four bent strokes of a pen, white on black.

    >>> strokes(2, 28).shape
    torch.Size([2, 1, 28, 28])
    """
    generator = np.random.default_rng(seed)
    grid = torch.cartesian_prod(*[torch.arange(size, dtype=torch.float32)] * 2)
    along = torch.linspace(0, 1, 20)[:, None]
    pictures = []
    for _ in range(count):
        number = int(generator.integers(1, 5))
        corners = size * (0.5 + generator.uniform(-0.32, 0.32, (2 * number + 1, 2)))
        curves = []
        for first in range(0, 2 * number, 2):
            start, middle, end = torch.from_numpy(corners[first : first + 3]).float()
            if generator.random() < 0.3:  # the pen is lifted
                start = torch.from_numpy(size * (0.5 + generator.uniform(-0.3, 0.3, 2))).float()
            curves.append((1 - along) ** 2 * start + 2 * along * (1 - along) * middle + along**2 * end)
        distance = torch.cdist(grid, torch.cat(curves)).amin(dim=1)
        pen = generator.uniform(0.7, 1.9)
        pictures.append((1 - (distance - pen) / 1.2).clamp(0, 1).view(1, size, size))
    return torch.stack(pictures)


def silhouettes(count: int, size: int, seed: int = 0) -> Tensor:
    """Pictures (count, 1, size, size) in [0, 1] of one thing on black: ovals and boxes, mirrored more often than not.

    >>> silhouettes(2, 28).shape
    torch.Size([2, 1, 28, 28])
    """
    generator = np.random.default_rng(seed)
    inside = dead_leaves(count, size, seed).mean(dim=1, keepdim=True).numpy()
    line = (np.arange(2 * size, dtype=np.float32) + 0.5) / size - 1
    down, across = line[:, None], line[None, :]
    pictures = np.empty_like(inside)
    for number in range(count):
        thing = np.zeros((2 * size, 2 * size), bool)
        for _ in range(int(generator.integers(1, 5))):
            y, x = generator.uniform(-0.6, 0.6), generator.uniform(-0.4, 0.4)
            half_y, half_x, turn = generator.uniform(0.1, 0.9), generator.uniform(0.1, 0.7), generator.normal(0, 0.3)
            u = (across - x) * math.cos(turn) + (down - y) * math.sin(turn)
            v = (down - y) * math.cos(turn) - (across - x) * math.sin(turn)
            box = generator.random() < 0.6
            far = np.maximum(abs(u) / half_x, abs(v) / half_y) if box else (u / half_x) ** 2 + (v / half_y) ** 2
            thing |= far < 1
        if generator.random() < 0.7:
            thing |= thing[:, ::-1]
        soft = thing.reshape(size, 2, size, 2).mean(axis=(1, 3))
        pattern, light = generator.uniform(0, 0.7), generator.uniform(0.2, 1.0)
        pictures[number, 0] = soft * np.clip(light + pattern * (inside[number, 0] - 0.5), 0.05, 1)
    return torch.from_numpy(pictures)


PICTURES: dict[str, Callable[[int, int, int], Tensor]] = {
    "leaves": dead_leaves,
    "silhouettes": silhouettes,
    "strokes": strokes,
}
"""Every kind by name: a function of how many, of which size, and of a seed."""


def draw(kind: str, count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    """`count` pictures of `kind` and of `shape` (C, H, W): (count, C, H, W).

    Colours become grey where one channel is wanted, and grey is repeated where several are.

    >>> draw("leaves", 3, (1, 20, 24), seed=0).shape
    torch.Size([3, 1, 20, 24])
    """
    channels, height, width = shape
    pictures = _drawn(kind, 1 << (count - 1).bit_length(), max(height, width), seed)[:count, :, :height, :width]
    if pictures.shape[1] != channels:
        pictures = pictures.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    return pictures.clone(memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=1)
def _drawn(kind: str, count: int, size: int, seed: int) -> Tensor:
    """Drawn one after the other, so parts of a join that want 3,000 and 4,000 share the first 4,096 of one seed."""
    return PICTURES[kind](count, size, seed)
