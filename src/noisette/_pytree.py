"""A batch: any pytree of tensors, such as a tuple or a tokenizer's dict, whose first dimensions count the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten

from noisette.errors import InvalidInput

__all__ = [
    "Batch",
    "Packed",
    "as_batch",
    "change",
    "filled",
    "is_array",
    "joined",
    "kind",
    "mapped_over",
    "packed",
    "parts",
    "plain",
    "rows",
    "size",
    "tensors",
    "unpacked",
]

_CACHE_LINE = 64  # bytes

Batch = Any
"""Tensors (B, ...) in tuples, lists and dicts, however nested; None may stand where there is nothing."""


def as_batch(data: Any, dtype: torch.dtype | None = None, *, one: bool = False) -> Batch:
    """`data` with tensors for its arrays and lists of numbers; those with a fraction get `dtype`, torch's by default.

    It is a batch, or, if so said, `one` example, where numbers may stand by themselves.

    >>> as_batch(([[1.0, 2.0], [3.0, 4.0]], np.array([0, 1])))
    (tensor([[1., 2.],
            [3., 4.]]), tensor([0, 1]))
    """
    if _is_flat(data):
        return data
    found = tree_map(lambda leaf: _tensor(leaf, dtype or torch.get_default_dtype()), plain(data), is_leaf=is_array)
    for path, leaf in tree_flatten_with_path(found)[0]:
        if not isinstance(leaf, Tensor) and leaf is not None:
            raise InvalidInput(
                f"examples{keystr(path)} of type {type(leaf).__name__} are not numbers in rows of one shape.",
                hint=f"give a tensor or an array{'' if one else ' with one row for each example'}, or leave it out",
            )
    return found


def size(batch: Batch) -> int:
    """The number of examples in a batch; all of its tensors have to agree on it.

    >>> size({"tokens": torch.zeros(3, 5), "labels": torch.zeros(3)})
    3
    """
    found = {len(leaf) if leaf.ndim else -1 for leaf in tensors(batch)}
    if len(found) == 1 and -1 not in found:
        return found.pop()
    if not found:
        raise InvalidInput("the examples hold no tensor.", hint="give tensors with one row for each example")
    leaves = [(path, leaf) for path, leaf in tree_flatten_with_path(batch)[0] if isinstance(leaf, Tensor)]
    sizes = {len(leaf) if leaf.ndim else -1: keystr(path) for path, leaf in leaves}
    if -1 in sizes:
        raise InvalidInput(
            f"examples{sizes[-1]} is a single number, which does not fit a batch.",
            hint="give a tensor with one row for each example",
        )
    (one, place), (other, there), *_ = sizes.items()
    raise InvalidInput(
        f"examples{place} has {one} rows and examples{there} has {other}, which do not fit.",
        hint="give every part one row for each example",
    )


def tensors(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, in order."""
    if _is_flat(batch):
        return list(batch.values())
    if _is_row(batch):
        return list(batch)
    if isinstance(batch, Tensor):
        return [batch]
    return [leaf for leaf in tree_flatten(batch)[0] if isinstance(leaf, Tensor)]


def change(batch: Batch, by: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with `by` applied to each of its tensors.

    >>> change((torch.ones(2), None), lambda part: part + 1)
    (tensor([2., 2.]), None)
    """
    if _is_flat(batch):
        return {name: by(part) for name, part in batch.items()}
    if _is_row(batch):
        return type(batch)([by(part) for part in batch])
    if isinstance(batch, Tensor):
        return by(batch)
    return tree_map(lambda leaf: by(leaf) if isinstance(leaf, Tensor) else leaf, batch)


def rows(batch: Batch, index: Any) -> Batch:
    """The examples at `index`: a slice, or a tensor (n,) or list of numbers.

    >>> rows((torch.tensor([4, 5, 6]), None), [2, 0])
    (tensor([6, 4]), None)
    """
    return change(batch, lambda part: part[index])


def parts(batch: Batch, most: int) -> Iterator[Batch]:
    """A batch in as few parts of at most `most` examples as there can be, of equal size but for one, in order.

    >>> list(parts(torch.arange(5), most=3))
    [tensor([0, 1]), tensor([2, 3, 4])]
    """
    count = -(-size(batch) // most)
    ends = [number * size(batch) // count for number in range(1, count + 1)]
    for start, stop in pairwise([0, *ends]):
        yield rows(batch, slice(start, stop))


def filled(batch: Batch, count: int) -> Batch:
    """A batch of `count` examples: those of one that is no larger, and its last one again and again.

    Memory is laid out alike for every batch: row after row, from an address where a cache line begins. What is computed
    of an example may be rounded by where it lies, and where a view lies depends on the examples in front of it.

    >>> filled(torch.tensor([4, 5]), 4)
    tensor([4, 5, 5, 5])
    """

    def alike(part: Tensor) -> Tensor:
        if len(part) == count and part.is_contiguous() and part.data_ptr() % _CACHE_LINE == 0:
            return part
        out = torch.empty((count, *part.shape[1:]), dtype=part.dtype, device=part.device)
        out[: len(part)] = part
        out[len(part) :] = part[-1:]
        return out

    return change(batch, alike)


def joined(batches: Sequence[Batch]) -> Batch:
    """One batch of the examples of several that are alike, in order.

    >>> joined([{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3])}])
    {'x': tensor([1, 2, 3])}
    """
    if _is_flat(batches[0]):
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    leaves = [tree_flatten(batch)[0] for batch in batches]
    found = [torch.cat(leaf) if isinstance(leaf[0], Tensor) else leaf[0] for leaf in zip(*leaves, strict=True)]
    return tree_unflatten(found, tree_flatten(batches[0])[1])


def kind(batch: Batch) -> tuple[object, ...]:
    """What batches must have in common to be joined: structure, types, and the shape of an example.

    >>> kind(torch.zeros(3, 2)) == kind(torch.zeros(5, 2)), kind(torch.zeros(3, 2)) == kind(torch.zeros(3, 4))
    (True, False)
    """
    if _is_flat(batch):
        return tuple(batch), *((part.dtype, part.shape[1:]) for part in batch.values())
    leaves, structure = tree_flatten(batch)
    return repr(structure), *((leaf.dtype, leaf.shape[1:]) if isinstance(leaf, Tensor) else None for leaf in leaves)


@dataclass(frozen=True)
class _Place:
    """Where in the tensor of its type a packed one begins, and its shape."""

    dtype: torch.dtype
    start: int
    shape: torch.Size


Packed = tuple[dict[torch.dtype, Tensor], list[Any]]
"""Batches in one tensor for each type of number, and their structures, with places where their tensors were."""


def packed(batches: Sequence[Batch]) -> Packed:
    """Many batches in few tensors: each tensor that goes from process to process takes an open file.

    >>> unpacked(packed([{"x": torch.tensor([1, 2])}, (torch.tensor([[0.5]]), None)]))
    [{'x': tensor([1, 2])}, (tensor([[0.5000]]), None)]
    """
    flat: dict[torch.dtype, list[Tensor]] = {}
    ends: dict[torch.dtype, int] = {}

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        start = ends.get(leaf.dtype, 0)
        ends[leaf.dtype] = start + leaf.numel()
        flat.setdefault(leaf.dtype, []).append(leaf.reshape(-1))
        return _Place(leaf.dtype, start, leaf.shape)

    places = [tree_map(placed, batch) for batch in batches]
    return {dtype: torch.cat(found) for dtype, found in flat.items()}, places


def unpacked(given: Packed) -> list[Batch]:
    """The batches that were packed, as views of their tensors."""
    flat, places = given

    def taken(leaf: Any) -> Any:
        if not isinstance(leaf, _Place):
            return leaf
        return flat[leaf.dtype][leaf.start : leaf.start + leaf.shape.numel()].view(leaf.shape)

    return [tree_map(taken, batch) for batch in places]


def mapped_over(
    vmap: Callable[[Callable[..., Any]], Callable[..., Any]], one: Callable[[Batch], Any], batch: Batch
) -> Any:
    """`one` of each example of a batch, seen as a batch of one, by ``vmap(function)(*tensors)``, a map over rows."""
    leaves, structure = tree_flatten(batch)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def of_rows(*given: Tensor) -> Any:
        filled = list(leaves)
        for place, part in zip(places, given, strict=True):
            filled[place] = part.unsqueeze(0)
        return one(tree_unflatten(filled, structure))

    return vmap(of_rows)(*(leaves[place] for place in places))


def _is_flat(batch: Batch) -> bool:
    """A plain dict of tensors, as collators make one of every example: walking a tree takes longer than reading it."""
    return type(batch) is dict and all(isinstance(part, Tensor) for part in batch.values())


def _is_row(batch: Batch) -> bool:
    """A plain tuple or list of tensors, as pairs of inputs and targets are."""
    return type(batch) in (tuple, list) and all(isinstance(part, Tensor) for part in batch)


def plain(data: Any) -> Any:
    """`data` with dicts for mappings of other kinds, such as those of tokenizers."""
    return tree_map(_as_dict, data, is_leaf=lambda part: isinstance(part, Mapping) and not isinstance(part, dict))


def _as_dict(part: Any) -> Any:
    return dict(part) if isinstance(part, Mapping) else part


def is_array(part: Any) -> bool:
    """Whether something is an array or a number, or a list of numbers and not of tensors."""
    while isinstance(part, list):
        if not part:
            return True
        part = part[0]
    return isinstance(part, bool | int | float | np.ndarray | np.generic)


def _tensor(leaf: Any, dtype: torch.dtype) -> Any:
    if isinstance(leaf, Tensor) or leaf is None:
        return leaf
    try:
        made = torch.as_tensor(np.require(leaf, requirements="W"))  # torch warns where an array is read-only
    except (TypeError, ValueError):
        return leaf
    return made.to(dtype) if made.is_floating_point() else made
