"""The fast way: one mapped pass over the chunk, back to the layer outputs only, then a rule for each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.batched_layers import LayerCallRecorder, batched_sdpa, mapped_parameter
from noisette._gradients.flat_params import Layout
from noisette._gradients.fused_clip import rows_at_a_time
from noisette._gradients.grad_forms import DenseRows, GradForm, Sum
from noisette._gradients.loss_adapter import LossAdapter, tensor_paths
from noisette._gradients.native_activations import tangent
from noisette._gradients.native_pooling import averaged, pooled
from noisette._gradients.rules import Rule, find
from noisette._gradients.rules.base import hooked
from noisette._gradients.state_guard import Instead, ModelTracer, StrategyNotApplicable, TracedCall
from noisette._gradients.strategies import buffers_of, vmapped
from noisette._pytree import Batch, change, mapped_over, size

__all__ = ["Layers"]


def _as_it_is(values: Tensor, requires_grad: bool = True) -> Tensor:  # noqa: ARG001
    """What checkpointing asks of the inputs of a frozen part makes no difference to the gradients of a trained one."""
    return values


def _by_zeros(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A product whose derivative torch computes by another formula where any number of any example is zero."""

    def instead(x: Tensor, *rest: Any, **options: Any) -> Tensor:
        if x.is_floating_point():
            raise StrategyNotApplicable("one example with a zero would change how the others are computed")
        return product(x, *rest, **options)

    return instead


_INSTEAD: Instead = {
    **{f: _by_zeros(f) for f in (torch.prod, Tensor.prod, torch.cumprod, Tensor.cumprod, Tensor.cumprod_)},
    F.scaled_dot_product_attention: batched_sdpa,
    F.adaptive_avg_pool2d: averaged,
    F.max_pool2d: pooled,
    torch.max_pool2d: pooled,
    torch.tanh: tangent,
    Tensor.tanh: tangent,
    Tensor.requires_grad_: _as_it_is,
}


class Layers:
    """Per-example gradients by a rule for each layer.

    The model is mapped over the chunk by vmap and sees one example: examples are isolated by construction. A layer that
    has a rule acts on all examples at once, each by itself. A parameter that no rule covers, or that is used outside of
    its layer, is given to every example as a copy of its own, so that its gradient is one row for each. `linear` says
    that all parameters are those of Linear layers, whose activations are small. Once `settled`, it stays as it is, and
    rejects examples of a shape that uses a parameter elsewhere.
    """

    def __init__(self, aim: LossAdapter, layout: Layout, calls: ModelTracer, memory: torch.memory_format) -> None:
        self._aim, self._layout, self._calls, self._memory = aim, layout, calls, memory
        trained = set(layout.parameters)
        self._named = {
            name: p for name, p in tensor_paths(aim.model).items() if isinstance(p, nn.Parameter) and p in trained
        }
        self._copied: set[nn.Parameter] = set()
        self.settled = False
        self._rules: dict[nn.Module, Rule] = {}
        self._copy(())

    @classmethod
    def candidates(cls, aim: LossAdapter, layout: Layout, calls: ModelTracer) -> tuple[Layers, ...]:
        """The fast ways to try, best first: none where no trained parameter has a rule.

        Channels last is twice as fast, but a model that calls ``view`` on images cannot be run that way.
        """
        first = cls(aim, layout, calls, torch.contiguous_format)
        if len(first._copied) == len(layout.parameters):
            return ()
        images = any(isinstance(layer, nn.Conv2d) for layer in first._rules)
        return (cls(aim, layout, calls, torch.channels_last), first) if images else (first,)

    def like(self, aim: LossAdapter, layout: Layout) -> Layers:
        """The same way for a copy of the model."""
        return type(self)(aim, layout, ModelTracer(aim.model, aim.given, layout), self._memory)

    @property
    def copied(self) -> int:
        """How many numbers of a gradient are those of copies, whose rows are there for all examples at once."""
        return sum(p.numel() for p in self._copied)

    def layers_of_copies(self) -> list[str]:
        """The layers that hold them, by class and name."""
        names = (name.rpartition(".")[0] for name, p in self._named.items() if p in self._copied)
        held = {name: self._aim.model.get_submodule(name) for name in names}
        return [f"{type(layer).__name__} {name!r}" if name else type(layer).__name__ for name, layer in held.items()]

    def rows(self, batch: Batch, out: Tensor) -> None:
        """Fill `out` (B, dim) from a batch of B examples."""
        self._fill(self.terms(batch), slice(None), out)

    def blocks(self, terms: Sequence[GradForm], count: int) -> Iterator[tuple[slice, Tensor]]:
        """Which of `count` examples, and their gradients (b, dim), a few at a time in the same memory."""
        together = rows_at_a_time(self._layout.dim)
        for start in range(0, count, together):
            some = slice(start, min(start + together, count))
            out = self._layout.rows(some.stop - some.start)
            self._fill(terms, some, out)
            yield some, out

    def row(self, terms: Sequence[GradForm], number: int) -> Tensor:
        """The gradient (dim,) of one example; the next one is in the same memory."""
        out = self._layout.rows(1)
        self._fill(terms, slice(number, number + 1), out)
        return out[0]

    def _fill(self, terms: Sequence[GradForm], some: slice, out: Tensor) -> None:
        for part, term in zip(self._layout.columns(out), terms, strict=True):
            found = term.rows(some, part)
            if found is not part:
                part.copy_(found)

    def terms(self, batch: Batch, counted: int | None = None) -> list[GradForm]:
        """The gradients of every parameter, in the order of the layout.

        With `counted`, those of all examples behind so many are zero.
        """
        count = size(batch)
        values = dict(zip(self._layout.parameters, self._layout.values, strict=True))
        copies = {p: values[p].expand(count, *p.shape).requires_grad_() for p in self._copied}
        # weights in the layout of the images: a convolution follows its weights
        leaves = {p: self._laid_out(values[p]).detach().requires_grad_() for p in values if p not in copies}
        sites = LayerCallRecorder(count)
        with (
            torch.enable_grad(),
            self._calls.one(instead=_INSTEAD) as call,
            sites.watched(self._rules, call),
        ):
            total = self._total(leaves, copies, change(batch, self._laid_out), call, counted)
        if total.grad_fn is None:
            raise StrategyNotApplicable("the loss depends on no parameter")
        edges = sites.edges()
        sought: list[Any] = [*edges, *leaves.values(), *copies.values()]
        found = torch.autograd.grad(total, sought, allow_unused=True)
        ends, strays, own = found[: len(edges)], found[len(edges) :][: len(leaves)], found[len(edges) + len(leaves) :]
        used = [p for p, gradient in zip(leaves, strays, strict=True) if gradient is not None]
        if used:  # outside of their layers, where no rule has seen it
            if self.settled:
                raise StrategyNotApplicable("a parameter is used outside of its layer for examples of this shape only")
            self._copy(used)
            return self.terms(batch, counted)
        rows = {p: [DenseRows(gradient)] for p, gradient in zip(copies, own, strict=True) if gradient is not None}
        noted = sites.terms(ends)
        return [self._term(p, count, rows.get(p) or noted.get(leaves.get(p, p), [])) for p in self._layout.parameters]

    def _term(self, parameter: nn.Parameter, count: int, terms: list[Any]) -> GradForm:
        if not terms:
            return DenseRows(torch.zeros(1, parameter.numel(), device=parameter.device).expand(count, -1))
        found: GradForm = terms[0] if len(terms) == 1 else Sum(terms)
        return found

    def _copy(self, more: Iterable[nn.Parameter]) -> None:
        """Give examples copies of these parameters too; layers that hold one run without their rules."""
        trained = set(self._layout.parameters)
        self._copied |= set(more)
        layers = {module: rule for module in self._aim.model.modules() if (rule := find(module)) is not None}
        while True:
            self._rules = {k: rule for k, rule in layers.items() if not self._copied & set(k.parameters())}
            ruled = {p for layer in self._rules for p in layer.parameters()}
            left = trained - ruled - self._copied
            self._copied |= left
            if not left:
                break
        kinds = {type(layer) for layer in self._rules if trained & set(layer.parameters())}
        self.linear = kinds == {nn.Linear} and not self._copied

    def _total(
        self,
        leaves: dict[nn.Parameter, Tensor],
        copies: dict[nn.Parameter, Tensor],
        batch: Batch,
        call: TracedCall,
        counted: int | None,
    ) -> Tensor:
        """The sum of the losses of all examples that are counted, each of which the model meets alone."""
        buffers = buffers_of(self._aim.model)

        def of_one(example: Batch, *, whole: bool) -> Any:
            values = {**leaves, **{p: mapped_parameter(copy) for p, copy in copies.items()}}
            named = {name: values[p] for name, p in self._named.items()}
            return self._aim.with_state({**named, **buffers}, call.admit(example), whole=whole, tie=False)

        loss = self._aim.given
        # known not to mix examples, so that it can have all outputs at once: vmap would take as long as for a layer
        if type(loss) is not nn.CrossEntropyLoss or loss.weight is not None or batch[1].ndim != 1 or hooked(loss):
            losses: Tensor = mapped_over(vmapped, lambda example: of_one(example, whole=False), batch)
            return losses[:counted].sum()  # of losses that were computed for all: the shape is that of every batch
        outputs = mapped_over(vmapped, lambda example: of_one(example, whole=True), batch)
        if not isinstance(outputs, Tensor) or outputs.ndim != 3:
            raise StrategyNotApplicable("the output is not one row of numbers for each example")
        with torch._C.DisableTorchFunction():
            losses = F.cross_entropy(
                outputs.squeeze(1),
                batch[1],
                ignore_index=loss.ignore_index,
                reduction="none",
                label_smoothing=loss.label_smoothing,
            )
            return losses[:counted].sum()

    def _laid_out(self, x: Tensor) -> Tensor:
        # not `contiguous`: one channel lies alike in both layouts, and only strides tell a convolution which is meant
        return x.to(memory_format=self._memory) if x.ndim == 4 else x
