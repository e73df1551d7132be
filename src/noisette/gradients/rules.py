"""Per-example gradients of one layer from its input and the derivative at its output."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["INPUT_DIMS", "apply", "conv2d", "linear", "margins", "supported"]

INPUT_DIMS: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv2d: 4}
"""The layers that have a rule, and the number of dimensions their input must have, the batch included."""


def supported(layer: nn.Module) -> bool:
    """Is there a rule for this layer and all its parameters?

    A subclass may compute something else, so only the classes themselves count.

    >>> supported(nn.Linear(2, 3)), supported(nn.Conv2d(1, 2, 3, padding_mode="circular"))
    (True, False)
    """
    names = {name for name, _ in layer.named_parameters(recurse=False)}
    plain = not isinstance(layer, nn.Conv2d) or layer.padding_mode == "zeros"
    return type(layer) in INPUT_DIMS and plain and names <= {"weight", "bias"}


def apply(layer: nn.Module, x: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Fill `weight` (B, ...) and `bias` (B, out) by the layer's rule; None stands for a frozen or missing one."""
    if isinstance(layer, nn.Conv2d):
        conv2d(layer, x, g, weight, bias)
    else:
        linear(x, g, weight, bias)


def linear(x: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Fill `weight` (B, out, in) and `bias` (B, out) of a Linear layer from x (B, in) and g (B, out).

    >>> weight = torch.empty(1, 2, 3)
    >>> linear(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 10.0]]), weight, None)
    >>> weight
    tensor([[[ 1.,  2.,  3.],
             [10., 20., 30.]]])
    """
    if weight is not None:
        torch.mul(g.unsqueeze(2), x.unsqueeze(1), out=weight)
    if bias is not None:
        bias.copy_(g)


def conv2d(layer: nn.Conv2d, x: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Fill `weight` (B, out, in / groups, kh, kw) and `bias` (B, out) from x (B, in, H, W) and g (B, out, h, w).

    With channels last, a patch is kh runs of contiguous numbers, so that all patches are one strided view of the padded
    input, and the gradient of an example is one matrix product.

    >>> weight = torch.empty(1, 1, 1, 2, 2)
    >>> conv2d(nn.Conv2d(1, 1, 2), torch.arange(4.0).view(1, 1, 2, 2), torch.ones(1, 1, 1, 1), weight, None)
    >>> weight.flatten()
    tensor([0., 1., 2., 3.])
    """
    if bias is not None:
        torch.sum(g, dim=(2, 3), out=bias)
    if weight is None:
        return
    count, out, high, wide = g.shape
    (kh, kw), (sh, sw), (dh, dw), groups = layer.kernel_size, layer.stride, layer.dilation, layer.groups
    inner = layer.in_channels // groups
    padded = _padded(layer, x)
    image, row, column, _ = padded.stride()
    patches = padded.as_strided(
        (count, groups, high, wide, kh, kw, inner),
        (image, inner, sh * row, sw * column, dh * row, dw * column, 1),
    ).reshape(count * groups, high * wide, kh * kw * inner)
    ends = g.permute(0, 2, 3, 1).reshape(count, high * wide, groups, out // groups).permute(0, 2, 3, 1)
    product = torch.bmm(ends.reshape(count * groups, out // groups, high * wide), patches)
    weight.copy_(product.view(count, out, kh, kw, inner).permute(0, 1, 4, 2, 3))


def margins(layer: nn.Conv2d) -> tuple[int, int, int, int]:
    """The zeros around a layer's input: top, left, bottom, right.

    >>> margins(nn.Conv2d(1, 1, 4, padding="same"))
    (1, 1, 2, 2)
    """
    if isinstance(layer.padding, str):  # "valid" has none
        reach = [d * (k - 1) if layer.padding == "same" else 0 for d, k in _taps(layer)]
        return reach[0] // 2, reach[1] // 2, reach[0] - reach[0] // 2, reach[1] - reach[1] // 2
    top, left = layer.padding
    return top, left, top, left


def _taps(layer: nn.Conv2d) -> list[tuple[int, int]]:
    return list(zip(layer.dilation, layer.kernel_size, strict=True))


def _padded(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """The input with its zero margins, (B, H, W, C) and contiguous."""
    top, left, bottom, right = margins(layer)
    last = x.permute(0, 2, 3, 1).contiguous()
    return F.pad(last, (0, 0, left, right, top, bottom)) if any((top, left, bottom, right)) else last
