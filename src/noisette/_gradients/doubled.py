"""The same model in double precision, where rounding is told from mixing."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from noisette._gradients.loss_adapter import LossAdapter
from noisette._pytree import Batch, change

__all__ = ["coarsest", "doubled"]


def coarsest(model: nn.Module, *more: Tensor) -> torch.dtype:
    """The type of lowest precision among a model's parameters and `more` that comes of it.

    >>> coarsest(nn.Sequential(nn.Linear(2, 2).double(), nn.Linear(2, 1)))
    torch.float32
    """
    types = {tensor.dtype for tensor in (*model.parameters(), *more) if _rounds(tensor)}
    return max(types, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def doubled(aim: LossAdapter, batch: Batch) -> tuple[LossAdapter, Batch]:
    """Copies of a model, of what it is trained for and of a batch, all in float64."""
    given = copy.deepcopy(aim.given).double() if isinstance(aim.given, nn.Module) else aim.given
    made = type(aim)(copy.deepcopy(aim.model).double(), given)
    made.within = aim.within
    return made, change(batch, lambda part: part.double() if part.is_floating_point() else part.clone())


def _rounds(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
