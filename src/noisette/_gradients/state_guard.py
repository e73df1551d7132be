"""Nothing outlives a call of the model: what one call has made of its examples cannot enter the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.autograd_function import custom_function_call

from noisette._gradients.flat_params import Layout
from noisette._gradients.function_overrides import FunctionOverrides
from noisette._gradients.state_snapshot import OWNER_ATTR, RngState, SnapshotEntry, StateSnapshot, same
from noisette._pytree import Batch, tensors
from noisette.errors import InvalidInput
from noisette.objectives import PerExample

__all__ = ["Instead", "ModelTracer", "StrategyNotApplicable", "TracedCall", "behind", "masking"]

_HINT = "compute it anew in every call, or change it between steps, in your own loop"


Instead = Mapping[Callable[..., Any], Callable[..., Any]]
"""Functions of torch, each with what is called in its place."""


class StrategyNotApplicable(RuntimeError):
    """This way of computing gradients does not fit the model; a slower one does."""


class ModelTracer:
    """The calls of a model and a loss, of which each must start from the same state, whatever earlier ones have seen.

    Parameters and buffers are the caller's to hand in anew. Tensors that a call has made of its examples are marked,
    and refused where a later call uses one. All else that the model holds, numbers, lists, arrays, tensors, must be
    after a call what it was before.

    >>> calls = ModelTracer(nn.Linear(2, 1), nn.MSELoss())
    >>> with calls.one() as call:
    ...     example = call.admit(torch.ones(1, 2))
    """

    def __init__(self, model: nn.Module, loss: object, layout: Layout | None = None) -> None:
        self._model, self._loss, self._layout = model, loss, layout
        self._last: list[tuple[int, int]] | None = None
        self._left: InvalidInput | None = None
        self.checking = True
        own = set(model.parameters())
        for part in behind(loss):
            if isinstance(part, nn.Module) and any(p.requires_grad and p not in own for p in part.parameters()):
                raise InvalidInput(
                    f"{type(part).__name__} has parameters that are no part of the model and would get no gradient.",
                    hint="make it a part of the model, and give an objective(model, batch) that uses it; where your "
                    "own loop trains it, as the generator of a GAN, or nobody does, call requires_grad_(False) of it "
                    "here, and requires_grad_(True) around torch.autograd.grad in that loop",
                )

    @contextmanager
    def one(self, *, thorough: bool = False, instead: Instead | None = None) -> Iterator[TracedCall]:
        """The block is one call; what is private in it goes through `TracedCall.admit` first.

        Under vmap nothing but a tensor can depend on an example. Where numbers can be read out of tensors, say
        `thorough`: everything that the model holds is then compared by value. `instead` is
        called in place of functions of torch.
        """
        self._refuse_what_is_left()
        before, now = self._held(thorough), self._parameters()
        moved, self._last = now != self._last, now
        trained = {id(parameter) for parameter in self._model.parameters() if parameter.requires_grad}
        call, done = TracedCall(instead or {}, trained), False
        try:
            with call:
                yield call
            done = True
        finally:
            after = self._held(thorough)
            if done or not self.checking:  # what fails while it is tried had synthetic examples like all others
                self._left = self._left or self._leftover(call, before, after, moved)
        self._refuse_what_is_left()
        for name, state in before.items():  # of which a later call would see nothing without drawing itself
            if isinstance(state, RngState) and call.changed(state, after.get(name, _MISSING), moved):
                raise _of_torch_alone(name.partition("[")[0], self._model)

    def _refuse_what_is_left(self) -> None:
        """Raise where a call has left something: that cannot be taken back, and every later call would see it."""
        if self._left is not None:
            raise InvalidInput(self._left.sentence, hint=self._left.hint)

    def _leftover(
        self, call: TracedCall, before: dict[str, object], after: dict[str, object], moved: bool
    ) -> InvalidInput | None:
        for name in {**before, **after}:
            drawn = isinstance(before.get(name), RngState)
            if not drawn and call.changed(before.get(name, _MISSING), after.get(name, _MISSING), moved):
                place = name.partition("[")[0].removeprefix("len(")  # keys may be made of examples, and are not told
                return InvalidInput(f"the model keeps {place} from one example to the next.", hint=_HINT)
        return None

    def _parameters(self) -> list[tuple[int, int]]:
        """Where the parameters that are used lie, and how often they were written to."""
        values = self._model.parameters() if self._layout is None else self._layout.values
        return [(value.data_ptr(), value._version) for value in values]

    def _held(self, thorough: bool) -> dict[str, object]:
        """What the modules and the loss hold beside parameters and buffers, leaf by leaf."""
        found = StateSnapshot(thorough)
        found.common_sources()
        for name, module in self._model.named_modules():
            found.module(module, f"{type(module).__name__} {name!r}" if name else type(module).__name__)
        for number, part in enumerate(behind(self._loss)):
            if part is self._model:
                continue
            if isinstance(part, nn.Module):
                for name, module in part.named_modules():
                    found.module(module, f"{type(module).__name__} {name}".strip() + " of the loss" * (number > 0))
            else:
                found.add(part, f"the loss {number}" if number else "the loss")
        return found.leaves


class TracedCall(FunctionOverrides):
    """One call, which knows the tensors that it has made of its own examples."""

    def __init__(self, instead: Instead, trained: Container[int]) -> None:
        super().__init__()
        self._modes, self._instead, self._trained = torch._C._len_torch_dispatch_stack(), instead, trained

    def admit(self, batch: Batch) -> Batch:
        """Mark an example, or a chunk of them, as this call's own."""
        for tensor in tensors(batch):
            setattr(tensor, OWNER_ATTR, self)
        return batch

    def changed(self, before: object, after: object, moved: bool) -> bool:
        """Whether a leaf of the model's state differs after this call, in a way that a later call might see.

        What is made of parameters alone differs where these have `moved` since the last call.
        """
        if isinstance(after, SnapshotEntry) and after.marked:  # kept to be looked at: no later call can use it
            return False
        if not (isinstance(before, SnapshotEntry) and isinstance(after, SnapshotEntry)):
            return not same(before, after)
        if before.value is not None and after.value is not None:
            return not same(before.value, after.value)
        if before.tensor is after.tensor:
            return before.version != after.version
        # made anew in every call, as weight_norm does; not from examples, or it would be marked
        return not (moved or same(before.tensor, after.tensor))

    def called(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The function itself, unless it uses what another call has left; what it makes of examples is marked."""
        if torch._C._len_torch_dispatch_stack() > self._modes and torch._C._are_functorch_transforms_active():
            raise StrategyNotApplicable("a dispatch mode of the model's own would see a batch")
        if func in _TELLING and torch._C._are_functorch_transforms_active():
            raise StrategyNotApplicable("the text form of a tensor would show all examples")
        if func is custom_function_call and args[0].vmap is not torch.autograd.Function.vmap:
            raise StrategyNotApplicable(f"{args[0].__name__} has its own way of treating a batch")
        if given.get("generator") is not None:
            raise _of_torch_alone("a torch.Generator")
        func = self._instead.get(func, func)
        used = _tensors((*args, *given.values()))
        marks = {mark for tensor in used if (mark := getattr(tensor, OWNER_ATTR, None)) is not None}
        if marks - {self}:
            raise InvalidInput(f"{_running()} uses a tensor that an earlier call of the model has left.", hint=_HINT)
        if any(id(tensor) in self._trained for tensor in used) and not _asks_for_form(func, args):
            raise InvalidInput(
                f"{_running()} uses a trained parameter that it has not taken from its module in this call.",
                hint="use it as an attribute of its module, or ask for model.parameters() where it is used: in a list "
                "or a variable from before, no gradient would reach it",
            )
        if not marks:
            return func(*args, **given)
        versions = [tensor._version for tensor in used]
        result = func(*args, **given)
        written = [t for t, version in zip(used, versions, strict=True) if t._version != version]
        made = (result,) if not written else (result, written, [t._base for t in written])
        for tensor in _tensors(made):
            setattr(tensor, OWNER_ATTR, self)
        return result


def _of_torch_alone(source: str, model: nn.Module | None = None) -> InvalidInput:
    """The refusal of random numbers that are not drawn for each example by itself.

    One number for all that are computed together tells how many those are, and where others know the numbers, an
    example more shifts those of all behind it.
    """
    return InvalidInput(
        f"the model or the loss draws random numbers from {source}.",
        hint=masking(model)
        or "draw with torch, torch.rand(()) for one, and without a generator: every example then has its own",
    )


def masking(model: nn.Module | None) -> str:
    """A hint where a speech model of transformers masks its inputs by numbers of numpy; none for all others."""
    for name, module in () if model is None else model.named_modules():
        if getattr(getattr(module, "config", None), "apply_spec_augment", False):
            owner = f"model.{name}" if name else "model"
            return f"{owner}.config.apply_spec_augment = False switches off masks that are drawn by numpy"
    return ""


def _asks_for_form(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a function tells the shape, type or place of a tensor, and nothing that a gradient goes through."""
    name = getattr(func, "__name__", "")
    return name in _FORM or (name == "__get__" and not _tensors((func(*args),)))


_FORM = {"size", "dim", "numel", "stride", "nelement", "ndimension", "is_floating_point", "is_complex", "__len__"}
_MISSING = object()
_PLAIN = {int, float, bool, str, type(None), slice, torch.dtype}
_TELLING = (Tensor.__repr__, Tensor.__format__)


def behind(goal: object) -> list[object]:
    """What a loss or objective holds: itself, and, of functions and methods, what is bound, given or closed over."""
    found, pending = list[object](), [goal]
    while pending:
        part = pending.pop(0)
        if any(part is one for one in found):
            continue
        found.append(part)
        if isinstance(part, PerExample):
            pending.append(part.objective)
        elif isinstance(part, partial):
            pending += [part.func, *part.args, *part.keywords.values()]
        elif isinstance(part, MethodType):
            pending += [part.__func__, part.__self__]
        elif isinstance(part, FunctionType):
            cells = [cell.cell_contents for cell in part.__closure__ or () if cell != CellType()]
            pending += [*cells, *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
    return found


def _tensors(values: Iterable[object]) -> list[Tensor]:
    """The tensors among some values, also inside of containers."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) in _PLAIN:  # first, since asking for a Mapping takes as long as a small operation of torch
            continue
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif isinstance(value, Mapping):
            found += _tensors(value.values())
    return found


def _running() -> str:
    """The innermost module that is running, by class."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the loss"
