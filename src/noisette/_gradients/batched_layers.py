"""Layers that run on all examples at once inside a model that sees one: what they saw, and where it is in the graph.

vmap shows the model one example. Inside, a layer that has a rule acts on every example by itself, so that it may be
given all of them: that saves vmap's detours, and leaves what it saw at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch._C._functorch import (
    _add_batch_dim,
    get_unwrapped,
    is_functorch_wrapped_tensor,
    maybe_current_level,
    maybe_get_bdim,
    pop_dynamic_layer_stack,
    push_dynamic_layer_stack,
)
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

from noisette._gradients.grad_forms import GradForm
from noisette._gradients.rules import Rule, Use
from noisette._gradients.state_guard import StrategyNotApplicable, TracedCall

__all__ = ["LayerCallRecorder", "batched_sdpa", "mapped_parameter", "run_batched", "run_batched_images"]

Made = Callable[[Tensor], GradForm]


class LayerCallRecorder:
    """All uses of trained parameters by layers with rules, in one call of a model with `count` examples."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._edges: list[tuple[GradientEdge, torch.Size, dict[Tensor, Made]]] = []
        self._inputs: list[tuple[Tensor, int]] = []

    @contextmanager
    def watched(self, rules: Mapping[nn.Module, Rule], call: TracedCall) -> Iterator[None]:
        """While the block runs, these layers run by their rules. Their own ``forward`` is back after it."""
        try:
            for layer, rule in rules.items():
                vars(layer)["forward"] = partial(_through, call, partial(self._run, layer, rule))
            yield
        finally:
            for layer in rules:
                vars(layer).pop("forward", None)

    def edges(self) -> list[GradientEdge]:
        """Where derivatives are needed."""
        if any(part._version != version for part, version in self._inputs):
            raise StrategyNotApplicable("a layer's input was changed in place")
        return [edge for edge, _, _ in self._edges]

    def terms(self, ends: Sequence[Tensor | None]) -> dict[Tensor, list[GradForm]]:
        """The terms of every parameter that matters, from the derivatives at `edges`."""
        found: dict[Tensor, list[GradForm]] = {}
        with torch.no_grad():
            for (_, shape, makers), end in zip(self._edges, ends, strict=True):
                if end is None:
                    continue
                for parameter, make in makers.items():
                    found.setdefault(parameter, []).append(make(end.reshape(shape)))
        return found

    def noted(self, out: Tensor, makers: dict[Tensor, Made], inputs: list[tuple[Tensor, int]]) -> Tensor:
        """`out`, which autograd now follows, as the place where these parameters come in; `inputs` must stay."""
        if not makers or not torch.is_grad_enabled():
            return out
        if not out.requires_grad:  # nothing before it is trained
            out.add_(out.new_zeros((), requires_grad=True))
        # the place it has now: what later changes it in place comes after. Of a view only its base keeps that place
        base = out if out._base is None else out._base
        if base.numel() != out.numel() or not ((base.is_contiguous() and out.is_contiguous()) or base is out):
            raise StrategyNotApplicable("a rule has noted a part of what it computed")
        self._edges.append((get_gradient_edge(base), out.shape, makers))
        self._inputs += inputs
        return out

    def _run(self, layer: nn.Module, rule: Rule, *args: Any, **given: Any) -> Any:
        """What a layer makes of one example, computed for all at once."""
        inputs = list[tuple[Tensor, int]]()

        def seen(part: Tensor) -> Tensor:
            whole = _examples_first(part, self._count)
            inputs.append((whole, whole._version))
            return whole

        return _for_all(partial(rule.run, layer, _Use(layer, self, inputs)), seen, args, given)


class _Use(Use):
    def __init__(self, layer: nn.Module, sites: LayerCallRecorder, inputs: list[tuple[Tensor, int]]) -> None:
        self._layer, self._sites, self._inputs = layer, sites, inputs

    def get(self, name: str) -> Tensor | None:
        found = self._find(name)
        return None if found is None else found.detach()

    def note(self, out: Tensor, **terms: Made) -> Tensor:
        held = {name: self._find(name.replace("__", ".")) for name in terms}
        makers = {p: terms[name] for name, p in held.items() if p is not None and p.requires_grad}
        return self._sites.noted(out, makers, self._inputs)

    def _find(self, name: str) -> Tensor | None:
        path, _, last = name.rpartition(".")
        holder = self._layer.get_submodule(path) if path else self._layer
        found: Tensor | None = getattr(holder, last)
        if found is not None and not found.is_leaf:
            raise StrategyNotApplicable("a weight is computed from parameters that no rule knows")
        return found


def mapped_parameter(values: Tensor) -> Tensor:
    """Values (B, ...), one for each example, as the parameter (...) that a model mapped by vmap sees."""
    return _wrapped(values, maybe_current_level())


def batched_sdpa(query: Tensor, key: Tensor, value: Tensor, *args: Any, **given: Any) -> Tensor:
    """`scaled_dot_product_attention` of one example under vmap, computed for all at once.

    It looks along the last two dimensions only. Torch can map no fused way of it over examples; all at once it can.
    """
    batched = [maybe_get_bdim(part) >= 0 for part in (query, key, value)]
    if not all(batched) or query.ndim not in (3, 4):
        return F.scaled_dot_product_attention(query, key, value, *args, **given)
    count = get_unwrapped(query).shape[maybe_get_bdim(query)]
    inner = query.ndim - 3  # dimensions between examples and heads

    def folded(part: Tensor) -> Tensor:
        if maybe_get_bdim(part) < 0:
            return part  # a mask for all examples
        missing = query.ndim - part.ndim
        whole = _examples_first(part, count)
        whole = whole.reshape(len(whole), *(1,) * missing, *whole.shape[1:])
        if inner:  # a mask may be one for all that an example has here
            whole = whole.expand(-1, query.shape[0], *whole.shape[2:]).flatten(0, 1)
        return whole

    def run(*args: Any, **given: Any) -> Tensor:
        # modes around the call still decide, as the one that switches dropout off does
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]), torch._C._EnableTorchFunction():
            found = F.scaled_dot_product_attention(*args, **given)
        return torch.unflatten(found, 0, (count, -1)) if inner else found

    made: Tensor = _for_all(run, folded, (query, key, value, *args), given)
    return made


def run_batched_images(run: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """`run` on all examples' images (B, C, H, W) at once, where the model sees those of one, (C, H, W) or (N, C, H, W).

    What is the same for all examples is run on as it is.
    """
    if maybe_get_bdim(images) < 0 or images.ndim not in (3, 4):
        return run(images)

    def flat(whole: Tensor) -> Tensor:
        made = run(whole.flatten(0, -4))
        return torch.unflatten(made, 0, whole.shape[:-3])

    return run_batched(flat, images)


def run_batched(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`run` on all examples at once, (B, ...), where the model sees one, (...).

    What is the same for all examples is run on as it is.
    """
    at = maybe_get_bdim(x)
    if at < 0:
        return run(x)
    count = get_unwrapped(x).shape[at]
    made: Tensor = _for_all(run, partial(_examples_first, count=count), (x,), {})
    return made


def _for_all(run: Callable[..., Any], whole: Callable[[Tensor], Tensor], args: Any, given: Any) -> Any:
    """`run` outside of vmap, on the `whole` of every tensor; what it makes is again seen one example at a time."""
    level = maybe_current_level()
    with torch._C.DisableTorchFunction():
        args = [_changed(whole, part) for part in args]
        given = {name: _changed(whole, part) for name, part in given.items()}
        outer = pop_dynamic_layer_stack()
        try:
            made = run(*args, **given)
        finally:
            push_dynamic_layer_stack(outer)
        return _changed(lambda part: _wrapped(part, level), made)


def _changed(change: Callable[[Tensor], Tensor], part: Any) -> Any:
    """All tensors in an argument changed; most are a tensor, and looking for others takes as long as a small layer."""
    return change(part) if isinstance(part, Tensor) else tree_map_only(Tensor, change, part)


def _examples_first(part: Tensor, count: int) -> Tensor:
    """A tensor that the model sees as (...), as (B, ...): vmap's own rows, or the same one for every example."""
    at = maybe_get_bdim(part)
    if at < 0:
        return part.unsqueeze(0).expand(count, *part.shape)
    whole = get_unwrapped(part)
    if is_functorch_wrapped_tensor(whole):
        raise StrategyNotApplicable("the model maps over dimensions of its own")
    return whole.movedim(at, 0) if at else whole


def _wrapped(values: Tensor, level: int | None) -> Tensor:
    """Values (B, ...) as the example (...) that vmap shows."""
    if level is None:
        raise StrategyNotApplicable("a layer runs outside of the call")
    return _add_batch_dim(values, 0, level)


def _through(call: TracedCall, run: Callable[..., Any], *args: Any, **given: Any) -> Any:
    with torch._C.DisableTorchFunction():  # what the call asks of tensors to see who made them is no use of them
        return call.called(run, args, given)
