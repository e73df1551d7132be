"""Examples: where batches come from. They are in memory, or are read when they are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from noisette.batch import Batch, as_batch, change, rows, size
from noisette.errors import InvalidInput
from noisette.training.refusing import foreign_batches

__all__ = ["Draw", "Examples", "Held", "Index", "Part", "count", "in_memory"]

Index = npt.NDArray[np.int64]

Part = tuple[Index, Batch]
"""Some examples of a draw: their positions in it (n,), and the batch of them."""


@dataclass(frozen=True, eq=False)
class Draw:
    """A batch that was drawn: for which mechanism of the run, its indices (n,), and groups (n,) where there are any.

    What is in one group, the examples of a unit or a micro-batch, is encoded as one. Groups ascend.
    """

    which: int
    index: Index
    groups: Index | None = None


class Examples(ABC):
    """A data set of which any examples can be had at any time, as Poisson sampling needs it."""

    @abstractmethod
    def __len__(self) -> int:
        """How many examples there are, which is public."""

    @abstractmethod
    def like(self) -> Batch:
        """A batch of at most one example: its shapes and types are what is wanted."""

    @abstractmethod
    def some(self, index: Index) -> list[Batch]:
        """The examples at `index`, read by this process, in parts of one shape."""

    @abstractmethod
    def stream(self, draws: Iterator[Draw]) -> Iterator[tuple[Draw, Iterator[Part]]]:
        """Every draw with its examples, in parts of one shape; each part is read when it is asked for, or before."""


class Held(Examples):
    """Examples in memory, a batch of all of them.

    >>> held = Held((torch.arange(4) * 10, torch.arange(4)))
    >>> len(held), held.some(np.array([3, 1]))
    (4, [(tensor([30, 10]), tensor([3, 1]))])
    """

    def __init__(self, batch: Batch) -> None:
        self._batch, self._count = batch, size(batch)

    def __len__(self) -> int:
        return self._count

    def like(self) -> Batch:
        """A batch of at most one example."""
        return rows(self._batch, slice(0, 1))

    def some(self, index: Index) -> list[Batch]:
        """The examples at `index`."""
        at = torch.from_numpy(index)
        return [change(self._batch, lambda part: part[at.to(part.device)])]

    def stream(self, draws: Iterator[Draw]) -> Iterator[tuple[Draw, Iterator[Part]]]:
        """Every draw with its examples, in one part."""
        for draw in draws:
            found = self.some(draw.index) if len(draw.index) else []
            yield draw, ((np.arange(len(draw.index)), part) for part in found)


def in_memory(data: Any, dtype: torch.dtype | None = None) -> Batch | None:
    """What a user calls data as a batch of all its examples; None for a data set whose examples have to be read.

    Numbers that are no tensors become tensors of type `dtype`.

    >>> in_memory(TensorDataset(torch.ones(3, 2), torch.ones(3)))[0].shape
    torch.Size([3, 2])
    """
    if isinstance(data, DataLoader):
        raise foreign_batches("a DataLoader")
    if isinstance(data, IterableDataset):
        raise InvalidInput(
            f"{type(data).__name__} gives examples in an order of its own, and Poisson sampling needs any at any time.",
            hint="give a Dataset with __len__ and __getitem__",
        )
    if type(data) is TensorDataset:
        data = data.tensors
    if data is None or (isinstance(data, Dataset) and not hasattr(data, "__len__")):
        raise InvalidInput(
            f"{type(data).__name__} is no data set.", hint="give tensors, or a Dataset with __len__ and __getitem__"
        )
    return None if _is_read(data) else as_batch(data, dtype)


def count(data: Any) -> int:
    """The number of examples in what a user calls data.

    >>> count((torch.zeros(5, 2), torch.zeros(5)))
    5
    """
    batch = in_memory(data)
    found = len(data) if batch is None else size(batch)
    if not found:
        raise InvalidInput("the data set is empty.", hint="give at least one example")
    return found


def _is_read(data: Any) -> bool:
    """Whether examples are read one by one: those of a Dataset, or of a list of examples."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], tuple | Mapping)
    plain = isinstance(data, tuple | Mapping) or hasattr(data, "__array__")
    return not plain and hasattr(data, "__getitem__") and hasattr(data, "__len__")
