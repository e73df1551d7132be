"""What a user calls data: tensors and arrays, in memory or mapped into it, or a data set that is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from noisette._pytree import as_batch
from noisette.errors import InvalidInput
from noisette.training._datasets import InMemoryExamples
from noisette.training._reject_loader_options import external_batching_error
from noisette.training.mapped import Mapped, has_mapped

__all__ = ["count", "held"]


def held(data: Any, dtype: torch.dtype | None = None) -> InMemoryExamples | None:
    """What a user calls data where it is in memory, or mapped into it; None where examples have to be read.

    Numbers that are no tensors become tensors of type `dtype`.

    >>> len(held(TensorDataset(torch.ones(3, 2), torch.ones(3))))
    3
    """
    if isinstance(data, DataLoader):
        raise external_batching_error("a DataLoader")
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
    if _is_read(data):
        return None
    return Mapped(data, dtype) if has_mapped(data) else InMemoryExamples(as_batch(data, dtype))


def count(data: Any) -> int:
    """The number of examples in what a user calls data.

    >>> count((torch.zeros(5, 2), torch.zeros(5)))
    5
    """
    found = len(data if (examples := held(data)) is None else examples)
    if not found:
        raise InvalidInput("the data set is empty.", hint="give at least one example")
    return found


def _is_read(data: Any) -> bool:
    """Whether examples are read one by one: those of a Dataset, or of a list of examples."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], tuple | Mapping)
    plain = isinstance(data, tuple | Mapping) or hasattr(data, "__array__")
    return not plain and hasattr(data, "__getitem__") and hasattr(data, "__len__")
