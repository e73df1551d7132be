"""Arrays that are mapped into memory from files: rows are read as they are drawn, and the rest stays on disk."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from noisette._pytree import Batch, as_batch, is_array, plain
from noisette.training._datasets import Index, InMemoryExamples

__all__ = ["Mapped", "has_mapped"]


class Mapped(InMemoryExamples):
    """Examples that are, at least in part, rows of arrays mapped into memory; those with a fraction become `dtype`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     array = np.memmap(file.name, np.float64, mode="w+", shape=(4, 2))
    ...     array[:] = np.arange(4)[:, None]
    ...     Mapped((array, [0, 1, 0, 1]), torch.float32).get(np.array([3, 1]))
    [(tensor([[3., 3.],
            [1., 1.]]), tensor([1, 1]))]
    """

    def __init__(self, data: Any, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._parts = tree_map(
            lambda leaf: leaf if _is_mapped(leaf) else as_batch(leaf, dtype), plain(data), is_leaf=is_array
        )
        super().__init__(tree_map(_shape_alone, self._parts))

    def spec_batch(self) -> Batch:
        """A batch of at most one example."""
        return self._rows(np.arange(min(1, len(self))))

    def get(self, index: Index) -> list[Batch]:
        """The examples at `index`, read from their files."""
        return [self._rows(index)]

    def _rows(self, index: Index) -> Batch:
        at = torch.from_numpy(index)

        def taken(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return leaf[at.to(leaf.device)]
            return np.asarray(leaf[index]) if _is_mapped(leaf) else leaf

        return as_batch(tree_map(taken, self._parts), self._dtype)


def has_mapped(data: Any) -> bool:
    """Whether any array of what a user calls data is mapped into memory.

    >>> has_mapped((np.zeros(3), [0, 1, 2]))
    False
    """
    return any(map(_is_mapped, tree_flatten(plain(data), is_leaf=is_array)[0]))


def _is_mapped(leaf: Any) -> bool:
    """Whether an array with rows, or what it is a view of, lies in a file."""
    if not isinstance(leaf, np.ndarray) or not leaf.ndim:
        return False
    base: Any = leaf
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return isinstance(base, mmap.mmap)


def _shape_alone(leaf: Any) -> Any:
    return torch.empty(leaf.shape, device="meta") if _is_mapped(leaf) else leaf
