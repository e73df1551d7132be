"""Layers that normalise an example, then scale and shift it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.grad_forms import DenseRows
from noisette._gradients.rules.base import Rule, Use

__all__ = ["GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


def _over_last(values: Tensor, count: int) -> DenseRows:
    """The sum of (B, ..., *shape) over all that is left of the last `count` dimensions."""
    return DenseRows(values if values.ndim == count + 1 else values.flatten(1, -count - 1).sum(dim=1))


class LayerNorm(Rule):
    """Over the last dimensions of x (B, ..., *shape)."""

    layers = (nn.LayerNorm,)

    def run(self, layer: nn.LayerNorm, use: Use, x: Tensor) -> Tensor:
        """All examples at once; mean and deviation are kept for the gradients."""
        shape, count = list(layer.normalized_shape), len(layer.normalized_shape)
        if torch.is_autocast_enabled(x.device.type):  # which computes norms in single precision
            x = x.float()
        out, mean, rstd = torch.native_layer_norm(x, shape, use.get("weight"), use.get("bias"), layer.eps)
        return use.note(
            out,
            weight=lambda g: _over_last(g * ((x - mean) * rstd), count),
            bias=lambda g: _over_last(g, count),
        )


class RMSNorm(Rule):
    """Over the last dimensions of x (B, ..., *shape), without a mean."""

    layers = (nn.RMSNorm,)

    def run(self, layer: nn.RMSNorm, use: Use, x: Tensor) -> Tensor:
        """All examples at once."""
        shape = list(layer.normalized_shape)
        out = F.rms_norm(x, shape, use.get("weight"), layer.eps)
        return use.note(out, weight=lambda g: _over_last(g * F.rms_norm(x, shape, None, layer.eps), len(shape)))


def _over_space(values: Tensor, examples: int) -> DenseRows:
    """The sum of (B * N, C, *space) over all but examples and channels."""
    return DenseRows(values.reshape(examples, -1, values.shape[1], values[0, 0].numel()).sum(dim=(1, 3)))


class GroupNorm(Rule):
    """Over groups of channels of x (B, N, C, *space)."""

    layers = (nn.GroupNorm,)

    def run(self, layer: nn.GroupNorm, use: Use, x: Tensor) -> Tensor:
        """All examples at once; a group is never of two."""
        flat, groups = x.flatten(0, 1), layer.num_groups
        out = use.note(
            F.group_norm(flat, groups, use.get("weight"), use.get("bias"), layer.eps),
            weight=lambda g: _over_space(g * F.group_norm(flat, groups, eps=layer.eps), len(x)),
            bias=lambda g: _over_space(g, len(x)),
        )
        return out.view_as(x)


_SPACE = {nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3}


class InstanceNorm(Rule):
    """Over the space of every channel of x (B, N, C, *space), or (B, C, *space)."""

    layers = tuple(_SPACE)

    def fits(self, layer: nn.Module) -> bool:
        """Statistics that are gathered are those of many examples."""
        return not getattr(layer, "track_running_stats", True)

    def run(self, layer: nn.modules.instancenorm._InstanceNorm, use: Use, x: Tensor) -> Tensor:
        """All examples at once."""
        flat = x.reshape(-1, *x.shape[-_SPACE[type(layer)] - 1 :])
        out = use.note(
            F.instance_norm(flat, weight=use.get("weight"), bias=use.get("bias"), eps=layer.eps),
            weight=lambda g: _over_space(g * F.instance_norm(flat, eps=layer.eps), len(x)),
            bias=lambda g: _over_space(g, len(x)),
        )
        return out.view_as(x)
