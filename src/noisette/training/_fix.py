"""A model that can be trained in private, made from one that cannot."""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar

from torch import nn

from noisette._gradients import refuse_hooks
from noisette.training.validate import in_place, mixing

__all__ = ["StatisticsDropped", "fix"]

_GROUPS, _CHANNELS = 32, 4  # at most so many groups, of at least so many channels: one number cannot be normalised

Model = TypeVar("Model", bound=nn.Module)


class StatisticsDropped(UserWarning):
    """Layers have lost the statistics of the data that they were trained on, and have to be trained again."""


def fix(model: Model) -> Model:
    """A copy of a model without what `check` finds in layers of torch; the model itself stays as it is.

    Layers of the BatchNorm family become GroupNorm layers with the same weights, of at most 32 groups of at least four
    channels. InstanceNorm layers normalise by the example alone. Both drop running statistics, which a
    `StatisticsDropped` warning tells. Activations no longer work in place. A layer that has two names keeps them. Hooks
    on parameters are refused: no copy has them.

    >>> found = fix(nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(inplace=True)))
    >>> found[2]
    ReLU()
    """
    refuse_hooks(model)
    fixed = copy.deepcopy(model)
    for _, layer in in_place(fixed):
        layer.inplace = False  # type: ignore[assignment]
    found = dict(mixing(fixed))
    replaced = {layer: _alone(layer) for layer in found.values()}
    for parent in list(fixed.modules()):
        for name, child in parent._modules.items():
            if child in replaced:
                parent._modules[name] = replaced[child]
    if found:
        kinds = sorted({type(layer).__name__ for layer in found.values()})
        warnings.warn(
            StatisticsDropped(
                f"{len(found)} layers ({', '.join(kinds)}) normalise every example by itself now, and have dropped "
                "their running statistics: a model that was trained with them has to be trained again"
            ),
            stacklevel=2,
        )
    return replaced.get(fixed, fixed)  # type: ignore[return-value]


def _alone(layer: Any) -> nn.Module:
    """What normalises by the example alone, in place of `layer`, on the same device and with the same weights."""
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        return layer
    channels = layer.num_features
    made = nn.GroupNorm(_groups(channels), channels, eps=layer.eps, affine=layer.affine)
    made.weight, made.bias = layer.weight, layer.bias
    return made.train(layer.training)


def _groups(channels: int) -> int:
    """The most groups, up to 32, that divide the channels and leave four to each; one where there are fewer."""
    most = min(_GROUPS, max(1, channels // _CHANNELS))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)
