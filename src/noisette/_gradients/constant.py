"""Losses that are constant for one example alone: nothing would be learned from them but noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from noisette._gradients.doubled import doubled
from noisette._gradients.loss_adapter import LossAdapter
from noisette._gradients.strategies import copies_of
from noisette._pytree import Batch, change, rows, size
from noisette.errors import InvalidInput

__all__ = ["refuse_constant"]


def refuse_constant(aim: LossAdapter, batch: Batch, largest: float) -> None:
    """Raise InvalidInput where no example of a made-up batch has a gradient, at these weights or at others.

    `largest` is the largest derivative of any example at the weights as they are. A loss that has reached its least, as
    a hinge may, has a gradient at other weights; one that compares an example with others has none, up to rounding, at
    any.
    """
    if largest > torch.finfo(torch.float32).eps ** 0.5:
        return
    try:
        found, least = _anywhere(*doubled(aim, batch)), torch.finfo(torch.float64).eps ** 0.75
    except Exception:  # noqa: BLE001 - whatever a model raises that was written for another type
        found, least = _anywhere(aim, batch), 0.0
    if found <= least:
        raise InvalidInput(
            "the loss of one example alone has no gradient, so that noise alone would be learned.",
            hint="a contrastive loss, a ranking and a softmax over one class have nothing to compare in one example: "
            "let an example bring what it is compared with, such as negatives of its own or public ones",
        )


def _anywhere(aim: LossAdapter, batch: Batch) -> float:
    """The largest derivative at the weights as they are, at their opposites and at some that are drawn."""
    public = torch.Generator().manual_seed(0)

    def drawn(values: Tensor) -> Tensor:
        fan = values.shape[-1] if values.ndim else 1
        return (torch.randn(values.shape, generator=public) / math.sqrt(fan)).to(values.device, values.dtype)

    return max(_at(aim, batch, values) for values in (Tensor.clone, torch.neg, drawn))


def _at(aim: LossAdapter, batch: Batch, values: Callable[[Tensor], Tensor]) -> float:
    """The largest derivative of any example's loss at other values of the trained parameters."""
    state = {name: values(p.detach()) if p.requires_grad else p for name, p in copies_of(aim.model).items()}
    trained = [name for name, p in aim.model.named_parameters() if p.requires_grad]
    for name in trained:
        state[name].requires_grad_()
    largest = 0.0
    for i in range(size(batch)):
        loss = aim.with_state(state, change(rows(batch, slice(i, i + 1)), Tensor.clone))
        parts = (
            [] if loss.grad_fn is None else torch.autograd.grad(loss, [state[n] for n in trained], allow_unused=True)
        )
        largest = max([largest, *(_largest(part) for part in parts if part is not None)])
    return largest


def _largest(gradient: Tensor) -> float:
    """The largest magnitude; what is no number counts as infinite."""
    return float(gradient.to_dense().abs().nan_to_num(nan=torch.inf).max()) if gradient.numel() else 0.0
