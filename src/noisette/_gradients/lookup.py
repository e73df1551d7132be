"""Gradients of a table for every example of a chunk, of which each names a few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noisette import _native
from noisette._gradients.grad_forms import NormAndSumForm, at_least_float32, by_position
from noisette._native.cpu import kernel_supports
from noisette._quantization import toward_zero

if TYPE_CHECKING:
    from noisette._native._extension import LookedUp

__all__ = ["EmbeddingRows"]


class EmbeddingRows(NormAndSumForm):
    """Rows of a table of `count` rows: derivatives g (B, ..., width) of those that an example's `index` (B, ...) names.

    What an example adds to one row is summed up first, in float64: the norm is that of these few rows.

    >>> table = EmbeddingRows(torch.tensor([[0, 2, 0]]), torch.tensor([[[1.0], [2.0], [3.0]]]), count=4)
    >>> table.rows(slice(None), torch.empty(1, 4)), table.square_norms()
    (tensor([[4., 0., 2., 0.]]), tensor([20.], dtype=torch.float64))
    """

    def __init__(self, index: Tensor, g: Tensor, count: int, padding: int | None = None) -> None:
        self._index, self._count = index.flatten(1) if index.ndim > 1 else index.unsqueeze(1), count
        g = by_position(at_least_float32(g))
        self._g = g if padding is None else g.masked_fill((self._index == padding).unsqueeze(2), 0.0)
        self._compact: tuple[Tensor, Tensor] | None = None
        self._native: tuple[LookedUp, Tensor] | None = None

    def parts(self) -> list[Tensor]:
        return [self._index, self._g]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        index, g = self._index[some], self._g[some]
        tables = out.zero_().view(len(g), self._count, g.shape[2])
        tables.scatter_add_(1, index.unsqueeze(2).expand_as(g), g)
        return out

    def square_norms(self) -> Tensor:
        """The square of every example's norm, float64 (B,)."""
        if (table := self._table()) is not None:
            return table[1]
        keys, sums = self._summed()
        found = sums.new_zeros(len(self._index))
        return found.index_add_(0, keys // self._count, sums.square().sum(dim=1))

    def add(self, weights: Tensor, total: Tensor, step: float) -> None:
        """Add all gradients, each times its weight, float64 (B,), to `total`, float64 (n,)."""
        if (table := self._table()) is not None:
            table[0].add(weights, step, total)
            return
        keys, sums = self._summed()
        mine = keys < len(weights) * self._count
        keys, sums = keys[mine], sums[mine]
        weights = weights[keys // self._count].unsqueeze(1)
        scaled = toward_zero(torch.where(weights != 0, sums, 0.0) * weights, step)
        total.view(self._count, -1).index_add_(0, keys % self._count, scaled)

    def _table(self) -> tuple[LookedUp, Tensor] | None:
        """The same by the kernel, and the squares of the norms; None where it does not run."""
        isa = _native.variant()
        if self._native is None and isa is not None and kernel_supports(self._g) and self._index.dtype == torch.int64:
            squares = torch.empty(len(self._g), dtype=torch.float64)
            index, g = self._index.contiguous(), self._g.contiguous()
            self._native = _native.native.LookedUp(index, g, self._count, squares, isa), squares
        return self._native

    def _summed(self) -> tuple[Tensor, Tensor]:
        """Which rows of whose table are named, (k,), and what all of an example's positions add to each, (k, width)."""
        if self._compact is None:
            examples = torch.arange(len(self._index), device=self._index.device).unsqueeze(1)
            keys, place = torch.unique(examples * self._count + self._index, return_inverse=True)
            sums = torch.zeros(len(keys), self._g.shape[2], dtype=torch.float64, device=self._g.device)
            self._compact = keys, sums.index_add_(0, place.flatten(), self._g.flatten(0, 1).double())
        return self._compact
