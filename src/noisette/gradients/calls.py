"""Nothing outlives a call of the model: what one call has made of its examples cannot enter the next one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._functorch.autograd_function import custom_function_call
from torch.overrides import TorchFunctionMode

from noisette.errors import InvalidInput

__all__ = ["Call", "Calls", "Unfit"]

_MARK = "_noisette_call"
# what torch itself keeps in a module: parameters and buffers, which every call gets anew, submodules, hooks, the mode
_TORCHS = frozenset({*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"})
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
        self._owners: dict[str, nn.Module] = dict(model.named_modules())
        if isinstance(loss, nn.Module):
            self._owners |= {f"{name} of the loss".strip(): module for name, module in loss.named_modules()}

    @contextmanager
    def one(self) -> Iterator[Call]:
        """The block is one call; what is private in it goes through `Call.admit` first."""
        before = self._held()
        with Call() as call:
            yield call
        after = self._held()
        for name in {**before, **after}:
            if call.changed(before.get(name, _MISSING), after.get(name, _MISSING)):
                raise InvalidInput(f"the model keeps {name} from one example to the next.", hint=_HINT)

    def _held(self) -> dict[str, object]:
        """What the modules hold beside parameters and buffers, leaf by leaf."""
        found: dict[str, object] = {}
        seen: set[int] = set()
        for name, module in self._owners.items():
            place = f"{type(module).__name__} {name!r}" if name else type(module).__name__
            for key, value in vars(module).items():
                if key not in _TORCHS:
                    _collect(value, f"{place}.{key}", found, seen)
        return found


class Call(TorchFunctionMode):
    """One call, which knows the tensors that it has made of its own examples, and the memory that it wrote them to."""

    def __init__(self) -> None:
        super().__init__()
        self._written: set[int | None] = set()

    def admit(self, tensor: Tensor) -> Tensor:
        """Mark an example, or a chunk of them, as this call's own."""
        setattr(tensor, _MARK, self)
        return tensor

    def changed(self, before: object, after: object) -> bool:
        """Whether a leaf of the model's state differs after this call, in a way that a later call might see."""
        if isinstance(after, _Held) and after.marked:  # kept to be looked at: no later call can use it
            return False
        if not (isinstance(before, _Held) and isinstance(after, _Held)):
            return not _same(before, after)
        if before.tensor is after.tensor:  # what is written through `data` counts no version
            return before.version != after.version or _memory(after.tensor) in self._written
        # made anew in every call, as weight_norm does; not from examples, or it would be marked
        return before.tensor.shape != after.tensor.shape or not torch.equal(before.tensor, after.tensor)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is custom_function_call and args[0].vmap is not torch.autograd.Function.vmap:
            raise Unfit(f"{args[0].__name__} has its own way of treating a batch")
        tensors = list(_tensors((*args, *given.values())))
        marks = {mark for tensor in tensors if (mark := getattr(tensor, _MARK, None)) is not None}
        if marks - {self}:
            raise InvalidInput(f"{_running()} uses a tensor that an earlier call of the model has left.", hint=_HINT)
        if not marks:
            return func(*args, **given)
        versions = [tensor._version for tensor in tensors]
        result = func(*args, **given)
        written = [t for t, version in zip(tensors, versions, strict=True) if t._version != version]
        for tensor in _tensors((result, written, [t._base for t in written])):
            setattr(tensor, _MARK, self)
        self._written.update(map(_memory, written))
        return result


@dataclass(frozen=True, eq=False)
class _Held:
    """A tensor that the model holds, how often it was written to, and whether a call has made it of its examples."""

    tensor: Tensor
    version: int
    marked: bool


class _Missing:
    """Stands for a value that is not there."""


_MISSING = _Missing()


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """The tensors among some values, also inside of containers."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, Mapping):
            yield from _tensors(value.values())


def _collect(value: object, path: str, found: dict[str, object], seen: set[int]) -> None:
    """Write the leaves below `value` to `found`, under names that say where they are."""
    if value is None or isinstance(value, _PLAIN):
        found[path] = value
        return
    if isinstance(value, np.ndarray):
        found[path] = value.copy()
        return
    parts = _parts(value, path)
    if parts is None:
        found[path] = _Held(value, value._version, hasattr(value, _MARK)) if isinstance(value, Tensor) else value
    elif id(value) not in seen:
        seen.add(id(value))
        for name, part in parts:
            _collect(part, name, found, seen)


def _parts(value: object, path: str) -> list[tuple[str, object]] | None:
    """What a container or an object consists of; None for a leaf."""
    if isinstance(value, Mapping):
        return [(f"{path}.{key}", part) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [(f"len({path})", len(value)), *((f"{path}[{i}]", part) for i, part in enumerate(value))]
    if isinstance(value, set):
        return [(path, frozenset(value))]
    if isinstance(value, _WITHOUT_FIELDS) or not hasattr(value, "__dict__"):
        return None
    return [(f"{path}.{key}", part) for key, part in vars(value).items()]


_PLAIN = (bool, int, float, complex, str, bytes)
_WITHOUT_FIELDS = (Tensor, type, ModuleType, FunctionType, MethodType)


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (*_PLAIN, frozenset)):
        return type(one) is type(other) and (one == other or one is other)
    return one is other


def _memory(tensor: Tensor) -> int | None:
    """Tells the memory of a tensor from that of all others alive; None inside vmap, where nothing can be written."""
    try:
        return tensor.untyped_storage().data_ptr()
    except NotImplementedError:
        return None


def _running() -> str:
    """The innermost module that is running, by class."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "the loss"
