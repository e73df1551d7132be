"""Patch features: how much of each of many small filters is where in an image. The filters are learnt from leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette.errors import InvalidInput
from noisette.features.base import Features
from noisette.spec import real, whole

__all__ = ["Patches", "spherical_means"]

_FLAT = 0.01  # added to a patch's variance, so that noise in a flat one is not blown up


@dataclass(frozen=True)
class Patches(Features):
    """Responses to `filters` filters of `size` pixels, in mirrored pairs, averaged on a grid of `grid` x `grid` cells.

    A patch is brought to mean 0 and deviation 1 and whitened; its response to each filter counts by as much as it
    exceeds `threshold`, positive and negative apart. The features of an image and of its mirror image are averaged,
    which costs nothing, since the mirror image only swaps the filters of a pair. At last the square root is taken.

    >>> Patches(filters=8, size=3, axes=10, count=20).learn((3, 12, 12))(torch.rand(2, 3, 12, 12)).shape
    torch.Size([2, 10])
    """

    filters: int = 800
    size: int = 6
    grid: int = 3
    threshold: float = 0.5
    group: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole("filters", self.filters, least=2) % 2:
            raise InvalidInput(f"{self.filters} filters do not make pairs.", hint="give an even number of filters")
        whole("size", self.size, least=2)
        whole("grid", self.grid, least=1)
        whole("group", self.group, least=1)
        self._set(threshold=real("threshold", self.threshold))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(filters=8, size=3, axes=10, count=20),
            cls(filters=4, size=4, grid=2, group=4, axes=5, count=20),
            cls(filters=8, size=3, grid=2, axes=3, count=20, maps=True),
        )

    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        if min(shape[1:]) < self.size + self.grid - 1:
            raise InvalidInput(
                f"images of {shape[1]}x{shape[2]} pixels are too small for patches of {self.size}.",
                hint="use smaller patches or a coarser grid",
            )
        return _Responses(shape[0], self)

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        assert isinstance(raw, _Responses)
        raw.learn(pictures, self.seed)


class _Responses(nn.Module):
    """The filters (filters, C, size, size) and what follows them."""

    filters: Tensor

    def __init__(self, channels: int, spec: Patches) -> None:
        super().__init__()
        self._spec = spec
        self.register_buffer("filters", torch.zeros(spec.filters, channels, spec.size, spec.size))

    def learn(self, pictures: Tensor, seed: int) -> None:
        """Half of the filters by spherical k-means on whitened patches, the other half their mirror images."""
        spec, (_, channels, size, _) = self._spec, self.filters.shape
        rows = _normalised(_random_patches(pictures, size, 40 * max(spec.filters, 500), seed))
        rows = torch.cat([rows, rows.view(-1, channels, size, size).flip(3).flatten(1)])  # the law knows no left
        whitening = _whitening(rows)
        means = spherical_means(rows @ whitening, spec.filters // 2, seed)
        half = (means @ whitening).view(-1, channels, size, size)
        self.filters.copy_(torch.cat([half, half.flip(3)]))

    def extra_repr(self) -> str:
        spec = self._spec
        return f"grid={spec.grid}, threshold={spec.threshold}, group={spec.group}, maps={spec.maps}"

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) to (N, filters * grid**2), or to maps."""
        spec = self._spec
        # a few at a time, so that their responses stay in the processor's cache
        found = images.new_empty(len(images), spec.filters, spec.grid, spec.grid)
        for start in range(0, len(images), 4):
            found[start : start + 4] = self._features(images[start : start + 4])
        return found if spec.maps else found.flatten(1)

    def _features(self, images: Tensor) -> Tensor:
        spec = self._spec
        places = tuple(side - spec.size + 1 for side in images.shape[2:])
        patches = _normalised(F.unfold(images, spec.size).transpose(1, 2))  # (N, places, C * size**2)
        # beyond the threshold, with its sign: one pass, from which the sums of both signs follow
        over = F.softshrink(patches @ self.filters.flatten(1).T, spec.threshold)
        cells = _cells(places, spec.grid)
        signed, both = cells @ over, cells @ over.abs_()
        found = torch.stack([both + signed, both - signed], dim=1) / 2
        halves = found.view(len(images), 2, spec.grid, spec.grid, 2, -1)
        # the mirror image has the halves of the filters swapped and runs the other way across
        mirrored = (halves[..., 0, :] + halves[..., 1, :].flip(3)) / 2
        rows = mirrored.permute(0, 4, 1, 2, 3).flatten(1, 2).clamp(min=0).sqrt()
        groups = rows.shape[1] // spec.group if rows.shape[1] % spec.group == 0 else 1
        return F.group_norm(rows, groups)


def _cells(places: tuple[int, ...], grid: int) -> Tensor:
    """A matrix (grid**2, places) that averages what lies in each cell of the grid."""
    sides = []
    for count in places:
        start, cell = torch.arange(count), torch.arange(grid)[:, None] * (count / grid)
        # a place on an edge counts in both cells by its share, so that left and right are alike
        side = (torch.minimum(start + 1, cell + count / grid) - torch.maximum(start, cell)).clamp(min=0)
        sides.append(side / side.sum(dim=1, keepdim=True))
    return torch.kron(sides[0], sides[1])


def _random_patches(pictures: Tensor, size: int, count: int, seed: int) -> Tensor:
    """`count` patches (count, C * size * size) from anywhere in `pictures` (N, C, H, W)."""
    generator = np.random.default_rng(seed)
    windows = pictures.unfold(2, size, 1).unfold(3, size, 1)  # (N, C, h, w, size, size), a view
    places = [torch.from_numpy(generator.integers(0, windows.shape[axis], count)) for axis in (0, 2, 3)]
    chosen: Tensor = windows[places[0], :, places[1], places[2]]
    return chosen.flatten(1)


def _normalised(rows: Tensor) -> Tensor:
    """Rows (..., D) at mean 0 and, flat ones apart, at deviation 1."""
    rows = rows - rows.mean(dim=-1, keepdim=True)
    return rows / (rows.var(dim=-1, keepdim=True) + _FLAT).sqrt()


def _whitening(rows: Tensor, floor: float = 0.1) -> Tensor:
    """The symmetric matrix (D, D) that takes rows to nearly uncorrelated ones."""
    values, vectors = torch.linalg.eigh((rows.T @ rows / len(rows)).double())
    matrix: Tensor = vectors @ torch.diag((values.clamp(min=0) + floor) ** -0.5) @ vectors.T
    return matrix.float()


def spherical_means(rows: Tensor, count: int, seed: int, rounds: int = 10) -> Tensor:
    """`count` directions (count, D), each the mean of the rows (N, D) that have most of it; signs do not matter.

    >>> spherical_means(torch.tensor([[2.0, 0.0], [0.0, -3.0]]), 2, seed=0).abs().sum(dim=0)
    tensor([1., 1.])
    """
    generator = np.random.default_rng(seed)
    start = rows[torch.from_numpy(generator.choice(len(rows), count, replace=False))]
    means = F.normalize(start, dim=1)
    for _ in range(rounds):
        sums = torch.zeros_like(means)
        for part in torch.split(rows, 10_000):
            response = part @ means.T
            best = response.abs().argmax(dim=1)
            strength = response.gather(1, best[:, None])
            sums.index_add_(0, best, strength * part)
        alive = sums.norm(dim=1, keepdim=True) > 0
        means = torch.where(alive, F.normalize(sums, dim=1), means)
    return means
