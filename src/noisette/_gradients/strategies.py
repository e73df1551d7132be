"""The general ways to per-example gradients: vmap, and a loop over single examples where vmap cannot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from noisette._gradients.flat_params import Layout
from noisette._gradients.loss_adapter import LossAdapter
from noisette._gradients.state_guard import ModelTracer, StrategyNotApplicable
from noisette._pytree import Batch, change, mapped_over, rows, size

__all__ = ["Loop", "Strategy", "Vmap", "buffers_of", "copies_of", "fill", "vmapped", "without_checkpoints"]


class Strategy(Protocol):
    """One way of computing gradients. It raises RuntimeError where it cannot, or where nothing can."""

    def rows(self, batch: Batch, out: Tensor) -> None:
        """Fill `out` (B, dim) from a batch of B examples."""


class Vmap:
    """torch.func: the gradient of one example, mapped over the chunk. Isolates examples by construction."""

    def __init__(self, aim: LossAdapter, layout: Layout, calls: ModelTracer) -> None:
        self._aim, self._layout, self._calls = aim, layout, calls

    def rows(self, batch: Batch, out: Tensor) -> None:
        """Fill `out` (B, dim) from a batch of B examples."""
        leaves = dict(zip(self._layout.names, self._layout.values, strict=True))
        buffers = buffers_of(self._aim.model)
        with self._calls.one() as call:

            def loss(leaves: dict[str, Tensor], buffers: dict[str, Tensor], example: Batch) -> Any:
                return self._aim.with_state({**leaves, **buffers}, call.admit(example))

            def one(example: Batch) -> Any:
                return grad(loss)(leaves, buffers, example)

            found = mapped_over(vmapped, one, batch)
        for name, part in zip(self._layout.names, self._layout.parts(out), strict=True):
            part.copy_(found[name])


class Loop:
    """One example after the other through ordinary autograd: slow, and right for whatever torch can differentiate.

    Each example meets copies of the parameters and buffers, so that whatever the model writes into them is gone.
    """

    def __init__(self, aim: LossAdapter, layout: Layout, calls: ModelTracer) -> None:
        self._aim, self._layout, self._calls = aim, layout, calls

    def rows(self, batch: Batch, out: Tensor) -> None:
        """Fill `out` (B, dim) from a batch of B examples."""
        for i in range(size(batch)):
            state = copies_of(self._aim.model)
            copies = [state[name] for name in self._layout.names]
            with torch.enable_grad(), without_checkpoints(), self._calls.one(thorough=True) as call:
                # a copy: a view leads to the memory of all examples
                one = change(rows(batch, slice(i, i + 1)), Tensor.clone)
                loss = self._aim.with_state(state, call.admit(one))
                found = torch.autograd.grad(loss, copies, allow_unused=True)
            fill(self._layout.parts(out[i]), found)


def fill(parts: Sequence[Tensor], found: Sequence[Tensor | None]) -> None:
    """Copy derivatives to where they belong; what does not matter gets zero."""
    for part, value in zip(parts, found, strict=True):
        if value is None:
            part.zero_()
        else:
            part.copy_(value.to_dense() if value.is_sparse else value)


@contextmanager
def _mapping() -> Iterator[None]:
    """While vmap runs: no fused attention, which cannot be mapped over examples, and no operation in a hidden loop."""
    no_hooks = "what is kept for the backward pass cannot be changed on the way"  # such code would see a batch
    with (
        _traced(),
        without_checkpoints(),
        disable_saved_tensors_hooks(no_hooks),
        sdpa_kernel(SDPBackend.MATH),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise StrategyNotApplicable(str(warning)) from warning


@contextmanager
def _traced() -> Iterator[None]:
    """Models are told that they are traced, as torch.compile tells them: shortcuts that read values cannot be taken.

    Those of transformers, for one, look whether a mask masks anything at all.
    """
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextmanager
def without_checkpoints() -> Iterator[None]:
    """Gradient checkpointing, in both ways that torch has, does nothing: what it would throw away is kept."""
    kind: Any = torch.utils.checkpoint._checkpoint_hook
    reentrant: Any = torch.utils.checkpoint.CheckpointFunction
    if "__enter__" in vars(kind):  # in another such block
        yield
        return
    kind.__enter__, kind.__exit__ = (lambda hook: hook), (lambda *_: None)
    reentrant.apply = staticmethod(lambda run, _, *args: run(*args))
    try:
        yield
    finally:
        del kind.__enter__, kind.__exit__, reentrant.apply


def vmapped(one: Callable[..., Any]) -> Callable[..., Any]:
    """`one` mapped over examples by vmap: it sees a single one, and cannot mix them or know how many there are."""

    def seen(*args: Any) -> Any:
        with torch._C._EnableTorchFunction():
            return one(*args)

    def all_at_once(*args: Any) -> Any:
        with _mapping(), torch._C.DisableTorchFunction():  # modes see what the model does, and not what vmap does
            return vmap(seen, randomness="different")(*args)

    return all_at_once


def copies_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters, also the frozen ones, and of the buffers."""
    copies = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in model.named_parameters()}
    return {**copies, **buffers_of(model)}


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers, for a call that must leave the model as it is."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}
