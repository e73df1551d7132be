"""Clipped sums for Linear layers without a row per example: the norm and the sum both factor."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from noisette._kernels.reference import allowed, scaled_norms

__all__ = ["l2_sum"]

_BLOCK = 1 << 20  # numbers held in float64 at a time: about what a processor's cache holds


def l2_sum(layers: Sequence[tuple[Tensor, Tensor]], radius: float, biases: Sequence[bool] = ()) -> Tensor:
    """The sum of gradients, each clipped to norm `radius`: float64 (dim,), every layer's weight, then its bias.

    A layer gives the pair of its input x (B, in) and the derivative g (B, out) at its output: an example's gradient is
    the outer product of g and x, with g itself for the bias, so its norm is |g| * sqrt(|x|**2 + 1), and the sum over
    examples is one matrix product. `biases` says which layers have a bias; when empty, all have. An example with a NaN
    or an infinity anywhere counts as zero.

    **Formal guarantees.** The rule, its float64 arithmetic and its rounding margin are those of the encoder `L2`: one
    example more or less moves the sum by at most `radius`, up to the rounding of a float64 sum.

    >>> x, g = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0]])
    >>> l2_sum([(x, g)], radius=1.0, biases=[False]).round(decimals=6)
    tensor([0.6000, 0.8000], dtype=torch.float64)
    """
    biased = list(biases) or [True] * len(layers)
    sizes = [(g.shape[1], x.shape[1]) for x, g in layers]
    weights = [torch.zeros(size, dtype=torch.float64, device=layers[0][0].device) for size in sizes]
    offsets = [torch.zeros(size[0], dtype=torch.float64, device=layers[0][0].device) for size in sizes]
    for block in _blocks(layers):
        finite, factor = _factors(block, biased, radius)
        for weight, offset, (x, g) in zip(weights, offsets, block, strict=True):
            clipped = torch.where(finite, g.double(), 0.0) * factor
            # a zero times an infinity is no zero, so x has to go as well; the copy is this function's own
            weight.addmm_(clipped.T, x.to(torch.float64, copy=True).masked_fill_(~finite, 0.0))
            offset.add_(clipped.sum(dim=0))
    parts = ((w.flatten(), b) if has else (w.flatten(),) for w, b, has in zip(weights, offsets, biased, strict=True))
    return torch.cat(list(itertools.chain.from_iterable(parts)))


def _blocks(layers: Sequence[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A few examples at a time."""
    size = max(1, _BLOCK // sum(x.shape[1] + g.shape[1] for x, g in layers))
    for start in range(0, len(layers[0][0]), size):
        yield [(x[start : start + size], g[start : start + size]) for x, g in layers]


def _factors(block: Sequence[tuple[Tensor, Tensor]], biased: Sequence[bool], radius: float) -> tuple[Tensor, Tensor]:
    """Which examples (B, 1) are finite, and what multiplies their gradients (B, 1)."""
    norms = [
        _norm(g) * torch.hypot(_norm(x), torch.tensor(float(has), dtype=torch.float64, device=x.device))
        for (x, g), has in zip(block, biased, strict=True)
    ]
    norm = _norm(torch.cat(norms, dim=1))
    finite = torch.isfinite(norm)
    return finite, torch.where(finite & (norm > allowed(radius)), allowed(radius) / norm, 1.0)


def _norm(rows: Tensor) -> Tensor:
    """Norms (B, 1) in float64; a NaN or an infinity stays one.

    The square of a number of 32 bits or fewer is an ordinary float64. Longer rows are divided by their largest number
    first, so that nothing overflows.
    """
    norm: Tensor
    if rows.dtype != torch.float64:
        norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        return norm
    norm, largest = scaled_norms(rows)
    return norm * largest
