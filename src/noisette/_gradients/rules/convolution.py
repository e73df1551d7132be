"""Convolutions over one, two or three dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from noisette import _native
from noisette._gradients.grad_forms import DenseRows, GradForm, KernelForm, aligned_empty, at_least_float32
from noisette._gradients.rules.base import Rule, Use
from noisette._native.cpu import kernel_supports

if TYPE_CHECKING:
    from noisette._native._extension import Layers

__all__ = ["Convolution", "Image", "Patches", "margins"]

_FEW, _FILTERS = 4, (8, 16)  # channels, and filters, of convolutions that the kernel is faster at

_CONV: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(Rule):
    """x (B, N, C, *space), or (B, C, *space), with any stride, dilation, groups and padding."""

    layers = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

    def run(self, layer: _ConvNd, use: Use, x: Tensor) -> Tensor:
        """All examples at once."""
        space = len(layer.kernel_size)
        lead = x.shape[: -space - 1]
        many = math.prod(lead[1:])
        flat = x.reshape(-1, *x.shape[-space - 1 :])
        padding: Any = layer.padding
        around = margins(layer)
        if layer.padding_mode != "zeros":
            flat = F.pad(flat, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
            padding, around = 0, ((0, 0),) * space
        weight, bias = use["weight"], use.get("bias")
        geometry = Geometry(layer.kernel_size, layer.stride, layer.dilation, layer.groups, around)
        isa = _native.variant()
        if isa is not None and _filtered(geometry, flat, weight):
            out = _by_kernel(geometry, flat, weight, bias, isa)
        else:
            out = _CONV[space](flat, weight, bias, layer.stride, padding, layer.dilation, layer.groups)
        known = many == 1 and space == 2 and layer.groups == 1 and set(layer.dilation) == {1}
        kind = Image if known else Patches
        noted = use.note(
            out,
            weight=lambda g: kind(geometry, at_least_float32(flat), at_least_float32(g), many),
            bias=lambda g: DenseRows(torch.unflatten(g.flatten(2).sum(dim=2), 0, (-1, many)).sum(dim=1)),
        )
        return torch.unflatten(noted, 0, lead)


@dataclass(frozen=True)
class Geometry:
    """How a convolution moves: `around` are the zeros before and after every dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    around: tuple[tuple[int, int], ...]


def _filtered(how: Geometry, x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes this convolution: few filters of images with few channels, at which others are slow.

    Only the strides of the weight tell that channels are meant to be last; with one tap they do not.
    """
    plain = len(how.kernel) == 2 and set(how.dilation) == {1} and math.prod(how.kernel) > 1
    last = plain and weight.stride(1) == 1 and weight.shape[1] <= _FEW and weight.shape[0] in _FILTERS
    alone = not x.requires_grad and not torch.is_autocast_enabled("cpu")
    return last and alone and how.groups == 1 and kernel_supports(x) and kernel_supports(weight)


def _by_kernel(how: Geometry, x: Tensor, weight: Tensor, bias: Tensor | None, isa: str) -> Tensor:
    """X (B, in, h, w) and weight (out, in, kh, kw), channels last, as `conv2d` has it."""
    (top, bottom), (left, right) = how.around
    sizes = zip(x.shape[2:], (top + bottom, left + right), how.kernel, how.stride, strict=True)
    places = [(side + margin - tap) // step + 1 for side, margin, tap, step in sizes]
    out = torch.empty(len(x), len(weight), *places, memory_format=torch.channels_last)
    taps = weight.permute(2, 3, 1, 0).contiguous()
    added = weight.new_zeros(len(weight)) if bias is None else bias
    edges = list(how.stride), [top, left, bottom, right]
    images = x.permute(0, 2, 3, 1).contiguous()
    _native.native.filter(images, taps, added, out.permute(0, 2, 3, 1), *edges, torch.get_num_threads(), isa)
    return out


class Patches(GradForm):
    """Sums over places of outer products with patches: x (B * many, in, *space), g (B * many, out, *places).

    With channels last, a patch is runs of contiguous numbers, so that all patches are one strided view of the padded
    input, and the gradient of an example is one matrix product.
    """

    def __init__(self, geometry: Geometry, x: Tensor, g: Tensor, many: int) -> None:
        self._geometry, self._x, self._g, self._many = geometry, x, g, many

    def parts(self) -> list[Tensor]:
        return [torch.unflatten(part, 0, (-1, self._many)) for part in (self._x, self._g)]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        how, many = self._geometry, self._many
        x, g = (torch.unflatten(part, 0, (-1, many))[some].flatten(0, 1) for part in (self._x, self._g))
        count, outer, places = len(x) // many, g.shape[1], g.shape[2:]
        inner = x.shape[1] // how.groups
        last = x.movedim(1, -1).contiguous()
        around = [margin for pair in reversed(how.around) for margin in pair]
        padded = F.pad(last, (0, 0, *around)) if any(around) else last
        image, *steps, _ = padded.stride()
        moves = [a * b for a, b in zip(how.stride, steps, strict=True)]
        taps = [a * b for a, b in zip(how.dilation, steps, strict=True)]
        patches = padded.as_strided(
            (count, how.groups, many, *places, *how.kernel, inner),
            (many * image, inner, image, *moves, *taps, 1),
        ).reshape(count * how.groups, many * places.numel(), math.prod(how.kernel) * inner)
        ends = g.movedim(1, -1).reshape(count, many * places.numel(), how.groups, outer // how.groups)
        size = (outer // how.groups, patches.shape[2])
        product = torch.unflatten(aligned_empty(len(patches), math.prod(size), x.dtype, x.device), 1, size)
        torch.bmm(ends.permute(0, 2, 3, 1).flatten(0, 1), patches, out=product)
        last_inner = torch.unflatten(torch.unflatten(product, 2, (*how.kernel, inner)), 0, (count, how.groups))
        out.view(count, how.groups, size[0], inner, *how.kernel).copy_(last_inner.movedim(-1, 3))
        return out


class Image(Patches, KernelForm):
    """Patches that the kernel makes by itself: two dimensions, one group, every tap."""

    def enter(self, layers: Layers, at: int, some: slice) -> None:
        """Add some of the examples to the kernel's layers, at coordinate `at` of the sum."""
        how = self._geometry
        (top, bottom), (left, right) = how.around
        x, g = (part[some].permute(0, 2, 3, 1).contiguous() for part in (self._x, self._g))
        layers.conv(x, g, list(how.kernel), list(how.stride), [top, left, bottom, right], at)

    def ordered(self, total: Tensor) -> Tensor:
        """What the kernel has summed up, (out, kh, kw, in) for it, in the parameter's own order (out, in, kh, kw)."""
        shape = self._g.shape[1], *self._geometry.kernel, self._x.shape[1]
        return total.view(shape).movedim(-1, 1).flatten()


def margins(layer: _ConvNd) -> tuple[tuple[int, int], ...]:
    """The zeros before and after every dimension of a layer's input.

    >>> margins(nn.Conv2d(1, 1, (4, 1), padding="same"))
    ((1, 2), (0, 0))
    """
    if isinstance(layer.padding, str):  # "valid" has none
        reach = [
            dilation * (size - 1) if layer.padding == "same" else 0
            for dilation, size in zip(layer.dilation, layer.kernel_size, strict=True)
        ]
        return tuple((whole // 2, whole - whole // 2) for whole in reach)
    return tuple((int(margin), int(margin)) for margin in layer.padding)
