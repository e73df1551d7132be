"""The fast way: one pass over the whole chunk, back to the layer outputs only, then a rule for each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.func import functional_call, vmap

from noisette._kernels.native import Kernel
from noisette.gradients import fused, ghost, rules
from noisette.gradients.layout import Layout
from noisette.gradients.ways import Loss, Unfit, buffers_of

__all__ = ["Batch"]


@dataclass(frozen=True)
class _Call:
    """What one layer saw: its input, with the version it had then, and the place of its output in the graph."""

    input: Tensor
    version: int
    edge: GradientEdge


class Batch:
    """Per-example gradients by the rules for Linear and Conv2d.

    Whether each layer runs at most once, on one row for each example, and whether its parameters are used nowhere else,
    is read from the graph of every chunk; `Unfit` says that it is not so. Examples are not isolated by construction
    here: `noisette.gradients.isolation` has to be asked first.
    """

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, memory: torch.memory_format) -> None:
        self._model, self._loss, self._layout, self._memory = model, loss, layout, memory
        self._layers = _layers(model)

    @classmethod
    def candidates(cls, model: nn.Module, loss: Loss, layout: Layout) -> tuple[Batch, ...]:
        """The fast ways to try, best first: none unless every trainable parameter belongs to one layer with a rule.

        Channels last is twice as fast, but a model that calls ``view`` on images cannot be run that way.
        """
        layers = _layers(model)
        owned = [p for held in layers.values() for p in held.values()]
        if len(set(owned)) < len(owned) or not all(map(rules.supported, layers)):
            return ()
        images = any(isinstance(layer, nn.Conv2d) for layer in layers)
        formats = (torch.channels_last, torch.contiguous_format) if images else (torch.contiguous_format,)
        return tuple(cls(model, loss, layout, memory) for memory in formats)

    def rows(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Fill `out` (B, dim) from inputs x (B, ...) and targets y (B, ...)."""
        ends = self._ends(x, y)
        parts = dict(zip(self._layout.parameters, self._layout.parts(out), strict=True))
        for layer, held in self._layers.items():
            mine = {name: parts[p] for name, p in held.items()}
            if layer in ends:
                rules.apply(layer, *ends[layer], mine.get("weight"), mine.get("bias"))
            else:
                for part in mine.values():
                    part.zero_()

    def takes(self, kernel: Kernel) -> bool:
        """Whether `add` can be asked to sum with this kernel."""
        return fused.supported(self._layers, self._layout, kernel)

    def add(self, kernel: Kernel, x: Tensor, y: Tensor, total: Tensor) -> None:
        """Add the encoded gradients of inputs x (B, ...) and targets y (B, ...) to `total` (dim,), in kernel order."""
        ends = self._ends(x, y)
        if len(ends) < len(self._layers):
            raise Unfit("a layer does not matter for the loss")
        fused.add(kernel, self._layers, ends, self._layout, total)

    def in_order(self, total: Tensor) -> Tensor:
        """What `add` has summed up, (dim,), in the order of the parameters."""
        return fused.in_order(self._layers, self._layout, total)

    @property
    def linear(self) -> bool:
        """Whether every layer is Linear with a trained weight, so that clipped sums factor."""
        return all(isinstance(layer, nn.Linear) and "weight" in held for layer, held in self._layers.items())

    def clipped(self, radius: float, x: Tensor, y: Tensor) -> Tensor:
        """The sum, float64 (dim,), of gradients clipped at an L2 norm of `radius`."""
        ends = self._ends(x, y)
        if len(ends) < len(self._layers):
            raise Unfit("a layer does not matter for the loss")
        pairs = [ends[layer] for layer in self._layers]
        return ghost.l2_sum(pairs, radius, ["bias" in held for held in self._layers.values()])

    def _ends(self, x: Tensor, y: Tensor) -> dict[nn.Module, tuple[Tensor, Tensor]]:
        """What every layer that matters saw, and the derivative of the summed losses at its output."""
        calls: dict[nn.Module, _Call] = {}
        # weights in the layout of the images: a convolution follows its weights
        leaves = {p: self._laid_out(p.detach()).requires_grad_() for p in self._layout.parameters}
        named = dict(zip(self._layout.names, leaves.values(), strict=True))
        with torch.enable_grad(), self._watched(calls, len(x)):
            outputs = functional_call(self._model, {**named, **buffers_of(self._model)}, (self._laid_out(x),))
            if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(x):
                raise Unfit("the output has no row for each example")
            total = self._summed_loss(outputs, y)
        self._check_graph(total, calls, leaves)
        found = torch.autograd.grad(total, [call.edge for call in calls.values()], allow_unused=True)
        return {
            layer: (call.input, end) for (layer, call), end in zip(calls.items(), found, strict=True) if end is not None
        }

    def _summed_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The sum of the losses of all examples: one at a time sees the loss, which therefore cannot mix them.

        Plain cross-entropy is known not to, and is asked for the sum at once: vmap takes as long as a small layer.
        """
        loss = self._loss
        if type(loss) is nn.CrossEntropyLoss and loss.weight is None and (outputs.ndim, y.ndim) == (2, 1):
            return nn.functional.cross_entropy(
                outputs, y, ignore_index=loss.ignore_index, reduction="sum", label_smoothing=loss.label_smoothing
            )
        return vmap(self._one_loss, randomness="different")(outputs, y).sum()

    def _one_loss(self, output: Tensor, target: Tensor) -> Tensor:
        return self._loss(output.unsqueeze(0), target.unsqueeze(0)).sum()

    def _laid_out(self, x: Tensor) -> Tensor:
        # not `contiguous`: one channel lies alike in both layouts, and only strides tell a convolution which is meant
        return x.to(memory_format=self._memory) if x.ndim == 4 else x

    @contextmanager
    def _watched(self, calls: dict[nn.Module, _Call], count: int) -> Iterator[None]:
        """Note what every layer sees while the block runs."""

        def watch(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            if layer in calls:
                raise Unfit("a layer runs twice")
            if len(args) != 1 or args[0].ndim != rules.INPUT_DIMS[type(layer)] or len(args[0]) != count:
                raise Unfit("a layer's input is not one row for each example")
            output = self._laid_out(output)
            # the edge is where the output is now: what later changes it in place comes after
            calls[layer] = _Call(args[0].detach(), args[0]._version, get_gradient_edge(output))
            return output

        hooks = [layer.register_forward_hook(watch, prepend=True) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _check_graph(self, total: Tensor, calls: dict[nn.Module, _Call], leaves: dict[nn.Parameter, Tensor]) -> None:
        """Every parameter must enter the graph through the one call of its layer and nowhere else."""
        if total.grad_fn is None:
            raise Unfit("the loss depends on no layer")
        nodes, uses = _walk(total.grad_fn)
        for layer, held in self._layers.items():
            call = calls.get(layer)
            if call is not None and call.input._version != call.version:
                raise Unfit("a layer's input was changed in place")
            expected = 1 if call is not None and call.edge.node in nodes else 0
            if any(uses[leaves[p]] != expected for p in held.values()):
                raise Unfit("a parameter is used outside its layer")


def _walk(root: Node) -> tuple[set[Node], Counter[Tensor]]:
    """All nodes behind `root`, and how often each leaf is used."""
    nodes, uses, pending = {root}, Counter[Tensor](), [root]
    while pending:
        for node, _ in pending.pop().next_functions:
            if node is None:
                continue
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                uses[leaf] += 1
            if node not in nodes:
                nodes.add(node)
                pending.append(node)
    return nodes, uses


def _layers(model: nn.Module) -> dict[nn.Module, dict[str, nn.Parameter]]:
    """The modules that hold trainable parameters themselves, and which."""
    own = {m: {n: p for n, p in m.named_parameters(recurse=False) if p.requires_grad} for m in model.modules()}
    return {module: held for module, held in own.items() if held}
