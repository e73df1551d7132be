"""Nothing outlives a call of the model: what one call has made of its examples cannot enter the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.autograd_function import custom_function_call

from noisette.batch import Batch, tensors
from noisette.errors import InvalidInput
from noisette.gradients.functions import Functions
from noisette.gradients.holdings import MARK, Held, Holdings, same

__all__ = ["Call", "Calls", "Unfit"]

_HINT = "compute it anew in every call, or change it between steps, in your own loop"


class Unfit(RuntimeError):
    """This way of computing gradients does not fit the model; a slower one does."""


class Calls:
    """The calls of a model and a loss, of which each must start from the same state, whatever earlier ones have seen.

    Parameters and buffers are the caller's to hand in anew. Tensors that a call has made of its examples are marked,
    and refused where a later call uses one. All else that the model holds, numbers, lists, arrays, tensors, must be
    after a call what it was before.

    >>> calls = Calls(nn.Linear(2, 1), nn.MSELoss())
    >>> with calls.one() as call:
    ...     example = call.admit(torch.ones(1, 2))
    """

    def __init__(self, model: nn.Module, loss: object) -> None:
        self._model, self._loss = model, loss

    @contextmanager
    def one(self, *, thorough: bool = False) -> Iterator[Call]:
        """The block is one call; what is private in it goes through `Call.admit` first.

        Under vmap nothing but a tensor can depend on an example. Where numbers can be read out of tensors, say
        `thorough`: everything that the model holds is then compared by value.
        """
        before = self._held(thorough)
        with Call() as call:
            yield call
        after = self._held(thorough)
        for name in {**before, **after}:
            if call.changed(before.get(name, _MISSING), after.get(name, _MISSING)):
                place = name.partition("[")[0].removeprefix("len(")  # keys may be made of examples, and are not told
                raise InvalidInput(f"the model keeps {place} from one example to the next.", hint=_HINT)

    def _held(self, thorough: bool) -> dict[str, object]:
        """What the modules and the loss hold beside parameters and buffers, leaf by leaf."""
        found = Holdings(thorough)
        for name, module in self._model.named_modules():
            found.module(module, f"{type(module).__name__} {name!r}" if name else type(module).__name__)
        modules = self._loss.named_modules() if isinstance(self._loss, nn.Module) else ()
        for name, module in modules:
            found.module(module, f"{type(module).__name__} {name}".strip())
        if not isinstance(self._loss, nn.Module):
            found.add(self._loss, "the loss")
        return found.leaves


class Call(Functions):
    """One call, which knows the tensors that it has made of its own examples."""

    def __init__(self) -> None:
        super().__init__()
        self._modes = torch._C._len_torch_dispatch_stack()

    def admit(self, batch: Batch) -> Batch:
        """Mark an example, or a chunk of them, as this call's own."""
        for tensor in tensors(batch):
            setattr(tensor, MARK, self)
        return batch

    def changed(self, before: object, after: object) -> bool:
        """Whether a leaf of the model's state differs after this call, in a way that a later call might see."""
        if isinstance(after, Held) and after.marked:  # kept to be looked at: no later call can use it
            return False
        if not (isinstance(before, Held) and isinstance(after, Held)):
            return not same(before, after)
        if before.value is not None and after.value is not None:
            return not same(before.value, after.value)
        if before.tensor is after.tensor:
            return before.version != after.version
        # made anew in every call, as weight_norm does; not from examples, or it would be marked
        return not same(before.tensor, after.tensor)

    def called(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The function itself, unless it uses what another call has left; what it makes of examples is marked."""
        if torch._C._len_torch_dispatch_stack() > self._modes and torch._C._are_functorch_transforms_active():
            raise Unfit("a dispatch mode of the model's own would see a batch")
        if func is custom_function_call and args[0].vmap is not torch.autograd.Function.vmap:
            raise Unfit(f"{args[0].__name__} has its own way of treating a batch")
        used = list(_tensors((*args, *given.values())))
        marks = {mark for tensor in used if (mark := getattr(tensor, MARK, None)) is not None}
        if marks - {self}:
            raise InvalidInput(f"{_running()} uses a tensor that an earlier call of the model has left.", hint=_HINT)
        if not marks:
            return func(*args, **given)
        versions = [tensor._version for tensor in used]
        result = func(*args, **given)
        written = [t for t, version in zip(used, versions, strict=True) if t._version != version]
        for tensor in _tensors((result, written, [t._base for t in written])):
            setattr(tensor, MARK, self)
        return result


_MISSING = object()


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """The tensors among some values, also inside of containers."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, Mapping):
            yield from _tensors(value.values())


def _running() -> str:
    """The innermost module that is running, by class."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the loss"
