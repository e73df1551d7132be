"""The hyperbolic tangent by the native kernel, for all examples at once: torch takes up to six times as long for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from noisette import _native
from noisette._gradients.batched_layers import run_batched
from noisette._native.cpu import kernel_supports

__all__ = ["tangent"]


def tangent(x: Tensor, **given: Any) -> Tensor:
    """`torch.tanh` of one example under vmap, computed for all at once; torch's own where the kernel has none.

    Both agree to some units in the last place, and a number of the kernel does not depend on those beside it.
    """
    isa = _native.variant()
    if isa is None or given:
        return torch.tanh(x, **given)

    def run(some: Tensor) -> Tensor:
        # only where numbers have gaps or overlap does what is like them lie otherwise
        if not kernel_supports(some) or torch.empty_like(some, device="meta").stride() != some.stride():
            return torch.tanh(some)
        found: Tensor = _Tangent.apply(some, isa)  # type: ignore[no-untyped-call]
        return found

    return run_batched(run, x)


class _Tangent(torch.autograd.Function):
    """Numbers of any shape that lie together, in any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, isa: str) -> Tensor:
        out = torch.empty_like(x)
        _native.native.tanh(_flat(x), _flat(out), torch.get_num_threads(), isa)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(g, out), None


def _flat(x: Tensor) -> Tensor:
    return x.detach().as_strided((x.numel(),), (1,))
