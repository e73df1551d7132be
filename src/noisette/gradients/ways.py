"""The general ways to per-example gradients: vmap, and a loop over single examples where vmap cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from noisette.gradients.layout import Layout

__all__ = ["Loop", "Loss", "Unfit", "Vmap", "Way", "buffers_of", "own_gradient"]

Loss = Callable[[Tensor, Tensor], Tensor]


class Unfit(RuntimeError):
    """This way of computing gradients does not fit the model; a slower one does."""


class Way(Protocol):
    """One way of computing gradients. It raises RuntimeError where it cannot, or where nothing can."""

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""


class Vmap:
    """torch.func: the gradient of one example, mapped over the chunk. Isolates examples by construction."""

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout) -> None:
        self._model, self._loss, self._layout = model, loss, layout

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""

        def one(leaves: dict[str, Tensor], buffers: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
            outputs = functional_call(self._model, {**leaves, **buffers}, (example.unsqueeze(0),))
            return self._loss(outputs, target.unsqueeze(0)).sum()

        leaves = dict(zip(self._layout.names, (p.detach() for p in self._layout.parameters), strict=True))
        # the fused kernels of attention cannot be mapped over examples, plain matrix products can
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            # where an operation has no batching rule, vmap loops over it and warns of that at every call: no gain
            warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
            try:
                found = vmap(grad(one), in_dims=(None, None, 0, 0), randomness="different")(
                    leaves, buffers_of(self._model), x, y
                )
            except UserWarning as warning:
                raise Unfit(str(warning)) from warning
        for name, part in zip(self._layout.names, self._layout.parts(out), strict=True):
            part.copy_(found[name])


class Loop:
    """One example after the other through ordinary autograd: slow, and right for whatever torch can differentiate."""

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout) -> None:
        self._model, self._loss, self._layout = model, loss, layout

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""
        for i in range(len(x)):
            with torch.enable_grad():
                outputs = functional_call(self._model, buffers_of(self._model), (x[i : i + 1],))
            own_gradient(self._loss, outputs, y[i : i + 1], self._layout, out[i])


def own_gradient(loss: Loss, outputs: Tensor, targets: Tensor, layout: Layout, out: Tensor) -> None:
    """Fill `out` (dim,) with the derivative of the loss of `outputs`; parameters that do not matter get zero."""
    with torch.enable_grad():
        total = loss(outputs, targets).sum()
    found: tuple[Tensor | None, ...] = torch.autograd.grad(
        total, layout.parameters, retain_graph=True, allow_unused=True
    )
    for part, value in zip(layout.parts(out), found, strict=True):
        if value is None:
            part.zero_()
        else:
            part.copy_(value)


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers, for a call that must leave the model as it is."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}
