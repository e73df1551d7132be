"""The fast way: one mapped pass over the chunk, back to the layer outputs only, then a rule for each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import get_unwrapped, maybe_get_bdim
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from noisette._kernels.native import Kernel
from noisette.batch import Batch, change, mapped_over
from noisette.gradients import fused, ghost, rules
from noisette.gradients.calls import Call, Calls, Unfit
from noisette.gradients.layout import Layout
from noisette.gradients.objective import Aim
from noisette.gradients.ways import buffers_of, mapped

__all__ = ["Layers"]


@dataclass(frozen=True)
class _Seen:
    """What one layer saw: rows of its input (B, ...), with the version they had then, and where its output is.

    `rows` turns the derivative at that place of the graph into rows (B, ...).
    """

    input: Tensor
    version: int
    edge: GradientEdge
    rows: Callable[[Tensor], Tensor]


class Layers:
    """Per-example gradients by the rules for Linear and Conv2d.

    The model is mapped over the chunk by vmap and sees one example: examples are isolated by construction. What every
    layer saw is then at hand for all examples at once. Whether each layer runs at most once, on one row, and whether
    its parameters are used nowhere else, is read from the graph of every chunk; `Unfit` says that it is not so.
    """

    def __init__(self, aim: Aim, layout: Layout, calls: Calls, memory: torch.memory_format) -> None:
        self._aim, self._layout, self._calls, self._memory = aim, layout, calls, memory
        self._layers = _layers(aim.model)

    @classmethod
    def candidates(cls, aim: Aim, layout: Layout, calls: Calls) -> tuple[Layers, ...]:
        """The fast ways to try, best first: none unless every trainable parameter belongs to one layer with a rule.

        Channels last is twice as fast, but a model that calls ``view`` on images cannot be run that way.
        """
        layers = _layers(aim.model)
        owned = [p for held in layers.values() for p in held.values()]
        if len(set(owned)) < len(owned) or not all(map(rules.supported, layers)):
            return ()
        images = any(isinstance(layer, nn.Conv2d) for layer in layers)
        formats = (torch.channels_last, torch.contiguous_format) if images else (torch.contiguous_format,)
        return tuple(cls(aim, layout, calls, memory) for memory in formats)

    def rows(self, batch: Batch, out: Tensor) -> None:
        """Fill `out` (B, dim) from a batch of B examples."""
        ends = self._ends(batch)
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

    def add(self, kernel: Kernel, batch: Batch, total: Tensor) -> None:
        """Add the encoded gradients of a batch to `total` (dim,), in the kernel's order."""
        ends = self._ends(batch)
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

    def clipped(self, radius: float, batch: Batch) -> Tensor:
        """The sum, float64 (dim,), of gradients clipped at an L2 norm of `radius`."""
        ends = self._ends(batch)
        if len(ends) < len(self._layers):
            raise Unfit("a layer does not matter for the loss")
        pairs = [ends[layer] for layer in self._layers]
        return ghost.l2_sum(pairs, radius, ["bias" in held for held in self._layers.values()])

    def _ends(self, batch: Batch) -> dict[nn.Module, tuple[Tensor, Tensor]]:
        """What every layer that matters saw, and the derivative of the summed losses at its output."""
        seen: dict[nn.Module, _Seen] = {}
        # weights in the layout of the images: a convolution follows its weights
        leaves = {p: self._laid_out(p.detach()).requires_grad_() for p in self._layout.parameters}
        named = dict(zip(self._layout.names, leaves.values(), strict=True))
        state = {**named, **buffers_of(self._aim.model)}
        with torch.enable_grad(), self._watched(seen), self._calls.one() as call:
            total = self._total(state, change(batch, self._laid_out), call)
        self._check_graph(total, seen, leaves)
        found = torch.autograd.grad(total, [call.edge for call in seen.values()], allow_unused=True)
        return {
            layer: (mine.input, mine.rows(end))
            for (layer, mine), end in zip(seen.items(), found, strict=True)
            if end is not None
        }

    def _total(self, state: dict[str, Tensor], batch: Batch, call: Call) -> Tensor:
        """The sum of the losses of all examples, each of which the model meets alone."""

        def one(example: Batch) -> Tensor:
            found: Tensor = self._aim.with_state(state, call.admit(example))
            return found

        def outputs_of_one(example: Batch) -> Any:
            return self._aim.with_state(state, call.admit(example), whole=True)

        loss = self._aim.given
        # known not to mix examples, so that it can have all outputs at once: vmap would take as long as for a layer
        if type(loss) is not nn.CrossEntropyLoss or loss.weight is not None or batch[1].ndim != 1 or _hooked(loss):
            total: Tensor = mapped_over(mapped, one, batch).sum()
            return total
        outputs = mapped_over(mapped, outputs_of_one, batch)
        if not isinstance(outputs, Tensor) or outputs.ndim != 3:
            raise Unfit("the output is not one row of numbers for each example")
        with torch._C.DisableTorchFunction():
            return nn.functional.cross_entropy(
                outputs.squeeze(1),
                batch[1],
                ignore_index=loss.ignore_index,
                reduction="sum",
                label_smoothing=loss.label_smoothing,
            )

    def _laid_out(self, x: Tensor) -> Tensor:
        # not `contiguous`: one channel lies alike in both layouts, and only strides tell a convolution which is meant
        return x.to(memory_format=self._memory) if x.ndim == 4 else x

    @contextmanager
    def _watched(self, seen: dict[nn.Module, _Seen]) -> Iterator[None]:
        """Note what every layer sees while the block runs."""

        def watch(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            with torch._C.DisableTorchFunction():  # what is looked at here is none of the model's doing
                note(layer, args, output)

        def note(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if layer in seen:
                raise Unfit("a layer runs twice")
            if len(args) != 1 or args[0].ndim != rules.INPUT_DIMS[type(layer)] or len(args[0]) != 1:
                raise Unfit("a layer's input is not one row for each example")
            given, made = args[0], output
            if maybe_get_bdim(given) < 0 or maybe_get_bdim(made) < 0:
                raise Unfit("a layer's input does not come from the examples")
            row = _rows(get_unwrapped(given).detach(), maybe_get_bdim(given))
            seen[layer] = _Seen(row, row._version, *_end(get_unwrapped(made), maybe_get_bdim(made)))

        hooks = [layer.register_forward_hook(watch, prepend=True) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _check_graph(self, total: Tensor, seen: dict[nn.Module, _Seen], leaves: dict[nn.Parameter, Tensor]) -> None:
        """Every parameter must enter the graph through the one call of its layer and nowhere else."""
        if total.grad_fn is None:
            raise Unfit("the loss depends on no layer")
        nodes, uses = _walk(total.grad_fn)
        for layer, held in self._layers.items():
            call = seen.get(layer)
            if call is not None and call.input._version != call.version:
                raise Unfit("a layer's input was changed in place")
            expected = 1 if call is not None and call.edge.node in nodes else 0
            if any(uses[leaves[p]] != expected for p in held.values()):
                raise Unfit("a parameter is used outside its layer")


def _rows(values: Tensor, examples_at: int) -> Tensor:
    """Values with the examples along dimension `examples_at` and a batch of one in front, as rows (B, ...)."""
    return values.movedim(examples_at, 0).squeeze(1)


def _end(made: Tensor, examples_at: int) -> tuple[GradientEdge, Callable[[Tensor], Tensor]]:
    """Where an output is in the graph, and how to turn the derivative there into rows (B, ...).

    The place is the one it has now: what later changes it in place comes after. Where it is a view, only its base keeps
    that place; vmap makes views that have their base's numbers in the same order.
    """
    base, rows = made._base, _rows(made.detach(), examples_at)
    if base is not None and (base.shape, base.stride()) == (rows.shape, rows.stride()):
        return get_gradient_edge(base), lambda end: end
    return get_gradient_edge(made), lambda end: _rows(end, examples_at)


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


def _hooked(module: nn.Module) -> bool:
    """Whether a module does more than its class says."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _layers(model: nn.Module) -> dict[nn.Module, dict[str, nn.Parameter]]:
    """The modules that hold trainable parameters themselves, and which."""
    own = {m: {n: p for n, p in m.named_parameters(recurse=False) if p.requires_grad} for m in model.modules()}
    return {module: held for module, held in own.items() if held}
