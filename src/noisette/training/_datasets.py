"""Examples: where batches come from. They are in memory, or are read when they are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from noisette._pytree import Batch, change, rows, size

__all__ = ["BatchDraw", "ExampleChunk", "Examples", "InMemoryExamples", "Index"]

Index = npt.NDArray[np.int64]

ExampleChunk = tuple[Index, Batch]
"""Some examples of a draw: their positions in it (n,), and the batch of them."""


@dataclass(frozen=True, eq=False)
class BatchDraw:
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
    def spec_batch(self) -> Batch:
        """A batch of at most one example: its shapes and types are what is wanted."""

    @abstractmethod
    def get(self, index: Index) -> list[Batch]:
        """The examples at `index`, read by this process, in parts of one shape."""

    @abstractmethod
    def stream(self, draws: Iterator[BatchDraw]) -> Iterator[tuple[BatchDraw, Iterator[ExampleChunk]]]:
        """Every draw with its examples, in parts of one shape; each part is read when it is asked for, or before."""


class InMemoryExamples(Examples):
    """Examples in memory, a batch of all of them.

    >>> held = InMemoryExamples((torch.arange(4) * 10, torch.arange(4)))
    >>> len(held), held.get(np.array([3, 1]))
    (4, [(tensor([30, 10]), tensor([3, 1]))])
    """

    def __init__(self, batch: Batch) -> None:
        self._batch, self._count = batch, size(batch)

    def __len__(self) -> int:
        return self._count

    def spec_batch(self) -> Batch:
        """A batch of at most one example."""
        return rows(self._batch, slice(0, 1))

    def get(self, index: Index) -> list[Batch]:
        """The examples at `index`."""
        at = torch.from_numpy(index)
        return [change(self._batch, lambda part: part[at.to(part.device)])]

    def stream(self, draws: Iterator[BatchDraw]) -> Iterator[tuple[BatchDraw, Iterator[ExampleChunk]]]:
        """Every draw with its examples, in one part."""
        for draw in draws:
            found = self.get(draw.index) if len(draw.index) else []
            yield draw, ((np.arange(len(draw.index)), part) for part in found)
