"""Pooling for all examples at once: windows never reach from one to another.

Max-pooling is done by the native kernel. Torch takes as long for it as for a convolution, and vmap would change the
layout of images on the way. Means over a whole image, channels last, are what vmap cannot run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisette import _native
from noisette._gradients.batched_layers import run_batched_images
from noisette._native.cpu import kernel_supports

__all__ = ["averaged", "pooled"]

_TOGETHER = 8  # channels that the kernel takes at a time

Pair = list[int]


def pooled(
    images: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,  # noqa: ARG001 - what asks for them is another function of torch
) -> Tensor:
    """`max_pool2d` of one example under vmap, computed for all at once; torch's own where the kernel has none.

    Both give the same numbers: the largest of a window, whose derivative goes to the first that is as large.
    """
    kernel, margin = _pair(kernel_size), _pair(padding)
    moves = _pair(stride) if stride else kernel
    isa = _native.variant()
    plain = isa is not None and _pair(dilation) == [1, 1] and not ceil_mode
    sound = min(kernel) > 0 and min(moves) > 0 and all(0 <= 2 * m <= k for m, k in zip(margin, kernel, strict=True))

    def run(some: Tensor) -> Tensor:
        if isa is not None and plain and sound and _taken(some, kernel, margin):
            found: Tensor = _Pool.apply(some, Windows(kernel, moves, margin), isa)  # type: ignore[no-untyped-call]
            return found
        return F.max_pool2d(some, kernel, moves, margin, _pair(dilation), ceil_mode)

    return run_batched_images(run, images)


def averaged(images: Tensor, output_size: Any) -> Tensor:
    """`adaptive_avg_pool2d` of one example under vmap, computed for all at once."""
    return run_batched_images(lambda some: F.adaptive_avg_pool2d(some, output_size), images)


class Windows(NamedTuple):
    """How windows lie, rows and columns of each."""

    kernel: Pair
    stride: Pair
    margin: Pair


def _taken(images: Tensor, kernel: Pair, margin: Pair) -> bool:
    """Whether the kernel takes these images, of which none is smaller than a window."""
    if not kernel_supports(images) or images.ndim != 4 or not images.is_contiguous(memory_format=torch.channels_last):
        return False
    wide = all(side + 2 * m >= k for side, m, k in zip(images.shape[2:], margin, kernel, strict=True))
    return wide and images.shape[1] % _TOGETHER == 0


class _Pool(torch.autograd.Function):
    """Images (B, C, H, W), channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: Windows, isa: str) -> Tensor:
        places = [(side + 2 * m - k) // s + 1 for side, k, s, m in zip(x.shape[2:], *how, strict=True)]
        out = x.new_empty(len(x), *places, x.shape[1])
        taps = torch.empty(out.shape, dtype=torch.int32)
        _native.native.pool(x.detach().permute(0, 2, 3, 1), out, taps, *how, torch.get_num_threads(), isa)
        ctx.how, ctx.isa, ctx.taps = how, isa, taps
        ctx.shape = (len(x), *x.shape[2:], x.shape[1])
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        out, ends = g.new_empty(ctx.shape), g.permute(0, 2, 3, 1).contiguous()
        _native.native.unpool(
            ends, ctx.taps, out, ctx.how.kernel, ctx.how.stride, ctx.how.margin, torch.get_num_threads(), ctx.isa
        )
        return out.permute(0, 3, 1, 2), None, None


def _pair(value: Any) -> Pair:
    """One number for both directions, or one for each."""
    numbers = [value] if isinstance(value, int) else list(value)
    return [int(numbers[0]), int(numbers[-1])]
