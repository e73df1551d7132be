"""The general ways to per-example gradients: vmap, and a loop over single examples where vmap cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from noisette.gradients.calls import Calls, Unfit
from noisette.gradients.layout import Layout

__all__ = ["Loop", "Loss", "Vmap", "Way", "buffers_of", "copies_of", "fill", "mapped"]

Loss = Callable[[Tensor, Tensor], Tensor]


class Way(Protocol):
    """One way of computing gradients. It raises RuntimeError where it cannot, or where nothing can."""

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""


class Vmap:
    """torch.func: the gradient of one example, mapped over the chunk. Isolates examples by construction."""

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, calls: Calls) -> None:
        self._model, self._loss, self._layout, self._calls = model, loss, layout, calls

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""
        leaves = dict(zip(self._layout.names, (p.detach() for p in self._layout.parameters), strict=True))
        with self._calls.one() as call:

            def one(leaves: dict[str, Tensor], buffers: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
                outputs = functional_call(self._model, {**leaves, **buffers}, (call.admit(example.unsqueeze(0)),))
                return self._loss(outputs, call.admit(target.unsqueeze(0))).sum()

            found = mapped(grad(one), in_dims=(None, None, 0, 0))(leaves, buffers_of(self._model), x, y)
        for name, part in zip(self._layout.names, self._layout.parts(out), strict=True):
            part.copy_(found[name])


class Loop:
    """One example after the other through ordinary autograd: slow, and right for whatever torch can differentiate.

    Each example meets copies of the parameters and buffers, so that whatever the model writes into them is gone.
    """

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, calls: Calls) -> None:
        self._model, self._loss, self._layout, self._calls = model, loss, layout, calls

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""
        for i in range(len(x)):
            state = copies_of(self._model)
            copies = [state[name] for name in self._layout.names]
            with torch.enable_grad(), self._calls.one(thorough=True) as call:
                example, target = call.admit(x[i : i + 1]), call.admit(y[i : i + 1])
                outputs = functional_call(self._model, state, (example,))
                found = torch.autograd.grad(self._loss(outputs, target).sum(), copies, allow_unused=True)
            fill(self._layout.parts(out[i]), found)


def fill(parts: Sequence[Tensor], found: Sequence[Tensor | None]) -> None:
    """Copy derivatives to where they belong; what does not matter gets zero."""
    for part, value in zip(parts, found, strict=True):
        if value is None:
            part.zero_()
        else:
            part.copy_(value)


@contextmanager
def _mapping() -> Iterator[None]:
    """While vmap runs: no fused attention, which cannot be mapped over examples, and no operation in a hidden loop."""
    no_hooks = "what is kept for the backward pass cannot be changed on the way"  # such code would see a batch
    with disable_saved_tensors_hooks(no_hooks), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise Unfit(str(warning)) from warning


def mapped(one: Callable[..., Any], in_dims: int | tuple[int | None, ...] = 0) -> Callable[..., Any]:
    """`one` mapped over examples by vmap: it sees a single one, and cannot mix them or know how many there are."""

    def all_at_once(*args: Any) -> Any:
        with _mapping():
            return vmap(one, in_dims=in_dims, randomness="different")(*args)

    return all_at_once


def copies_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters, also the frozen ones, and of the buffers."""
    copies = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in model.named_parameters()}
    return {**copies, **buffers_of(model)}


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers, for a call that must leave the model as it is."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}
