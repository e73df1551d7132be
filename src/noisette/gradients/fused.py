"""Gradients that are encoded while they are computed: no row of them is ever stored."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from noisette._kernels.native import Kernel, fits, new_layers
from noisette.gradients import rules
from noisette.gradients.layout import Layout

__all__ = ["Ends", "add", "in_order", "supported"]

Ends = Mapping[nn.Module, tuple[Tensor, Tensor]]
"""For each layer its input and the derivative at its output."""


def supported(layers: Mapping[nn.Module, Mapping[str, nn.Parameter]], layout: Layout, kernel: Kernel) -> bool:
    """Whether the kernel can take these layers, with the parameters each holds.

    Every parameter must lie in one of the encoder's blocks of coordinates.
    """
    whole = all(fits(p) for p in layout.parameters)
    plain = all(not isinstance(layer, nn.Conv2d) or (layer.groups, layer.dilation) == (1, (1, 1)) for layer in layers)
    edges = {0, *torch.cumsum(torch.tensor(kernel.dims or (layout.dim,)), 0).tolist()}
    starts = {*layout.starts.values(), layout.dim}
    return whole and plain and edges <= starts


def add(
    kernel: Kernel, held: Mapping[nn.Module, Mapping[str, nn.Parameter]], ends: Ends, layout: Layout, total: Tensor
) -> None:
    """Add the encoded sum of all examples to `total` (dim,), in which conv weights lie as (kh, kw, in, out)."""
    layers, starts = new_layers(), layout.starts
    for layer, (x, g) in ends.items():
        mine = held[layer]
        weight, bias = mine.get("weight"), mine.get("bias")
        has = weight is not None, bias is not None
        at = starts[weight] if weight is not None else 0, starts[bias] if bias is not None else 0
        x, g = x.float(), g.float()  # noqa: PLW2901 - autocast may have made them shorter
        if isinstance(layer, nn.Conv2d):
            x, g = x.permute(0, 2, 3, 1).contiguous(), g.permute(0, 2, 3, 1).contiguous()  # noqa: PLW2901
            layers.conv(x, g, list(layer.kernel_size), list(layer.stride), list(rules.margins(layer)), *has, *at)
        else:
            x, g = x.contiguous(), g.contiguous()  # noqa: PLW2901
            layers.linear(x, g, *has, *at)
    kernel.add(layers, total)


def in_order(held: Mapping[nn.Module, Mapping[str, nn.Parameter]], layout: Layout, total: Tensor) -> Tensor:
    """`total` (dim,) with conv weights as torch has them, (out, in, kh, kw)."""
    ordered = total.clone()
    views = dict(zip(layout.parameters, layout.parts(ordered), strict=True))
    for layer, mine in held.items():
        if isinstance(layer, nn.Conv2d) and "weight" in mine:
            out, inner, high, wide = mine["weight"].shape
            start = layout.starts[mine["weight"]]
            found = total[start : start + mine["weight"].numel()].view(high, wide, inner, out)
            views[mine["weight"]].copy_(found.permute(3, 2, 0, 1))
    return ordered
