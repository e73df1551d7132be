"""Responses to filters that come in mirrored pairs, averaged in cells: what patch features are made of."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["Responses", "mirrored_means", "normalised", "patches_of", "spherical_means"]

_FLAT = 0.01  # added to a patch's variance, so that noise in a flat one is not blown up


class Responses(nn.Module):
    """Responses of an image (C, H, W) to filters (filters, C, size, size), as features of its `grid` x `grid` cells.

    A patch is brought to mean 0, unless its channels are `centred`, and to deviation 1; its response to each filter
    counts by as much as it exceeds `threshold`, positive and negative apart, averaged over a cell. The second half of
    the filters are the mirror images of the first, so the features of an image's mirror image are at hand, and the two
    are averaged. Then the square root is taken, and `group` channels at a time are normalised.
    """

    filters: Tensor

    def __init__(
        self,
        channels: int,
        filters: int,
        size: int,
        grid: int,
        threshold: float,
        group: int,
        maps: bool,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self._grid, self._threshold, self._group, self._maps, self._centred = grid, threshold, group, maps, centred
        self.register_buffer("filters", torch.zeros(filters, channels, size, size))

    def extra_repr(self) -> str:
        return f"grid={self._grid}, threshold={self._threshold}, group={self._group}, maps={self._maps}"

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) to (N, filters * grid**2), or to maps (N, filters, grid, grid)."""
        found = images.new_empty(len(images), len(self.filters), self._grid, self._grid)
        for number, image in enumerate(images):  # one at a time, so that its responses stay in the processor's cache
            found[number] = self._features(image[None])
        return found if self._maps else found.flatten(1)

    def _features(self, image: Tensor) -> Tensor:
        grid, size = self._grid, self.filters.shape[-1]
        over = F.softshrink(patches_of(image, size, self._centred) @ self.filters.flatten(1).T, self._threshold)
        cells = _cells(tuple(side - size + 1 for side in image.shape[2:]), grid)
        # beyond the threshold, with its sign: one pass, from which the sums of both signs follow
        signed, both = cells @ over, cells @ over.abs_()
        halves = (torch.stack([both + signed, both - signed]) / 2).view(2, grid, grid, 2, -1)
        # the mirror image has the halves of the filters swapped and runs the other way across
        mirrored = (halves[..., 0, :] + halves[..., 1, :].flip(2)) / 2
        rows = mirrored.permute(3, 0, 1, 2).flatten(0, 1).clamp(min=0).sqrt()[None]
        groups = rows.shape[1] // self._group if rows.shape[1] % self._group == 0 else 1
        return F.group_norm(rows, groups)[0]


def patches_of(image: Tensor, size: int, centred: bool = False) -> Tensor:
    """All patches of an image (1, C, H, W), normalised: (places, C * size**2)."""
    return normalised(F.unfold(image, size)[0].T, centred)


def normalised(rows: Tensor, centred: bool = False) -> Tensor:
    """Rows (..., D) at mean 0, which those that are `centred` have by and large, and, flat ones apart, at deviation 1.

    >>> normalised(torch.tensor([[0.0, 10.0, 20.0]]))
    tensor([[-1.0000,  0.0000,  1.0000]])
    """
    rows = rows if centred else rows - rows.mean(dim=-1, keepdim=True)
    variance = rows.square().sum(dim=-1, keepdim=True) / (rows.shape[-1] - 1)  # four times as fast as var
    return rows / (variance + _FLAT).sqrt()


def mirrored_means(pictures: Tensor, filters: int, size: int, seed: int, parity: Tensor | None = None) -> Tensor:
    """Filters (filters, C, size, size) for `pictures` (N, C, H, W), the second half the mirror images of the first.

    The first half are spherical means of whitened patches. Where `parity` (C,) is given, channels are centred, and one
    of parity -1 has the other sign in mirror images. A patch has no mean of its own to take off then: it would be
    another one in the mirror image.

    >>> mirrored_means(torch.rand(9, 3, 8, 8), 4, 3, seed=0).shape
    torch.Size([4, 3, 3, 3])
    """
    channels = pictures.shape[1]
    signs = (torch.ones(channels) if parity is None else parity)[:, None, None]
    rows = normalised(_random_patches(pictures, size, 40 * max(filters, 500), seed), centred=parity is not None)
    rows = torch.cat([rows, (rows.view(-1, channels, size, size).flip(3) * signs).flatten(1)])  # the law knows no left
    whitening = _whitening(rows)
    half = (spherical_means(rows @ whitening, filters // 2, seed) @ whitening).view(-1, channels, size, size)
    return torch.cat([half, half.flip(3) * signs])


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


def _whitening(rows: Tensor, floor: float = 0.1) -> Tensor:
    """The symmetric matrix (D, D) that takes rows to nearly uncorrelated ones."""
    values, vectors = torch.linalg.eigh((rows.T @ rows / len(rows)).double())
    matrix: Tensor = vectors @ torch.diag((values.clamp(min=0) + floor) ** -0.5) @ vectors.T
    return matrix.float()
