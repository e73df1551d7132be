"""Sums of encoded gradients from terms: a few rows at a time, or none where a term needs none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import DenseRows, GradForm, KernelForm, NormAndSumForm
from noisette._native.cpu import Kernel, new_layers

if TYPE_CHECKING:
    from noisette._native._extension import Layers

__all__ = ["add", "kernel_supports_layout", "rows_at_a_time", "sum_in_order"]

_AT_HAND = 20_000_000  # coordinates of gradients that are held at a time, where rows have to be computed


def rows_at_a_time(dim: int) -> int:
    """Of how many examples gradients of `dim` coordinates are held: one, and more of small models.

    >>> rows_at_a_time(1_000_000), rows_at_a_time(50_000_000)
    (20, 1)
    """
    return max(1, _AT_HAND // max(1, dim))


def kernel_supports_layout(kernel: Kernel, layout: Layout) -> bool:
    """Whether the kernel can sum the gradients of these parameters: each must lie in one block of coordinates."""
    plain = all(p.dtype != torch.float64 and p.device.type == "cpu" for p in layout.parameters)
    edges = {0, *torch.cumsum(torch.tensor(kernel.dims or (layout.dim,)), 0).tolist()}
    return plain and edges <= {*layout.starts.values(), layout.dim}


def add(
    kernel: Kernel, terms: Sequence[GradForm], layout: Layout, count: int, filled: int, total: Tensor, most: int
) -> None:
    """Add the encoded gradients of the first `count` examples to `total`, float64 (dim,), in the kernel's order.

    Terms are of `filled` examples, and rows are computed for all of them, since products round by their shapes. `most`
    is the largest number of examples in terms of all that are added to the same total.
    """
    if kernel.limit is None:
        for some in _a_few(terms, layout.dim, count, filled):
            kernel.add(_entered(terms, layout, some, count), total)
        return
    factored = [
        (term, span) for term, span in zip(terms, layout.spans, strict=True) if isinstance(term, NormAndSumForm)
    ]
    others = [None if isinstance(term, NormAndSumForm) else term for term in terms]
    limit = kernel.limit
    if factored:
        kernel, limit = kernel.with_products(most)
    squares = torch.zeros(count, dtype=torch.float64)
    for term, _ in factored:
        squares += term.square_norms()[:count]
    if any(others):
        few = _a_few(others, layout.dim, count, filled)
        clipped = [kernel.clip(_entered(others, layout, some, count), total, squares[some]) for some in few]
        factors = torch.cat(clipped)
    else:
        factors = torch.where(squares.isfinite(), torch.clamp(limit / squares.sqrt(), max=1.0), 0.0)
    for term, span in factored:
        term.add(factors, total[span], kernel.step)  # of examples behind those that have a factor nothing counts


def sum_in_order(terms: Sequence[GradForm], layout: Layout, total: Tensor) -> Tensor:
    """What `add` has summed up, (dim,), in the order of the parameters; `terms` are those of any chunk."""
    for term, part in zip(terms, layout.columns(total.unsqueeze(0)), strict=True):
        if isinstance(term, KernelForm):
            part[0] = term.ordered(part[0].clone())
    return total


def _a_few(terms: Sequence[GradForm | None], dim: int, count: int, filled: int) -> Iterator[slice]:
    """Examples whose rows are at hand together, of all that are `filled` in, as far as some of them count."""
    step = rows_at_a_time(dim) if _computed(terms) else max(1, filled)
    return (slice(start, min(start + step, filled)) for start in range(0, count, step))


def _computed(terms: Sequence[GradForm | None]) -> bool:
    """Whether rows have to be computed, and a place for them is needed."""
    return any(term is not None and not isinstance(term, KernelForm | DenseRows) for term in terms)


def _entered(terms: Sequence[GradForm | None], layout: Layout, some: slice, count: int) -> Layers:
    """The terms of some examples as the kernel takes them: of those that are among the first `count`."""
    layers, rows = new_layers(), layout.rows(some.stop - some.start if _computed(terms) else 0)
    counted = slice(some.start, min(some.stop, count))
    for term, start, part in zip(terms, layout.starts.values(), layout.columns(rows), strict=True):
        if isinstance(term, KernelForm):
            term.enter(layers, start, counted)
        elif term is not None:
            layers.rows(term.rows(some, part)[: counted.stop - counted.start], start)
    return layers
