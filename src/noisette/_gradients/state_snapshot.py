"""What a model holds beside its parameters and buffers, leaf by leaf, so that two moments can be compared."""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from noisette.errors import InvalidInput

__all__ = ["OWNER_ATTR", "RngState", "SnapshotEntry", "StateSnapshot", "same"]

OWNER_ATTR = "_noisette_call"
"""The attribute of a tensor that a call has made of its examples."""

_PLAIN = (bool, int, float, complex, str, bytes)
_OPAQUE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_STATE = frozenset({"_parameters", "_buffers", "_modules"})
_OF_TORCH = frozenset(vars(nn.Module()))
_MT19937 = 4 * (624 + 1)  # bytes: its numbers, and which of them is the next
_RECURRENT = frozenset({"_flat_weights", "_flat_weight_refs"})  # the parameters once more


@dataclass(frozen=True, eq=False)
class SnapshotEntry:
    """A tensor that the model holds: how often it was written to, whether a call has made it of its examples, a copy.

    There is a copy only where values are compared: `data` and numpy write behind the back of the version.
    """

    tensor: Tensor
    version: int
    marked: bool
    value: Tensor | None


@dataclass(frozen=True)
class RngState:
    """How far a source of random numbers has come: whoever draws from it leaves something to the next call."""

    state: object


class StateSnapshot:
    """Leaves under names that say where they are: numbers, tensors, arrays, and whatever else has no parts.

    A `thorough` look copies tensors, and sees what torch keeps in a module (its mode, its hooks, which parameters and
    submodules it has) and what its classes hold.

    >>> found = StateSnapshot(thorough=False)
    >>> found.add({"rate": 0.5, "seen": [1]}, "net")
    >>> found.leaves
    {"net['rate']": 0.5, "len(net['seen'])": 1, "net['seen'][0]": 1}
    """

    def __init__(self, thorough: bool) -> None:
        self.leaves: dict[str, object] = {}
        self._thorough = thorough
        self._seen = dict[int, object]()  # by id, and kept: what is gone would leave its id to something else

    def common_sources(self) -> None:
        """Add the sources of random numbers that Python and numpy have for everybody."""
        self.leaves["random"] = RngState(random.getstate())
        self.leaves["numpy.random"] = RngState(_of_numpy())

    def module(self, module: nn.Module, place: str) -> None:
        """Add what a module holds itself."""
        left_out = _STATE if self._thorough else _OF_TORCH
        if isinstance(module, nn.RNNBase):
            left_out |= _RECURRENT
        for key, value in vars(module).items():
            if key not in left_out:
                self.add(value, f"{place}.{key}")
        if self._thorough:
            for kind in _STATE:
                for key, value in vars(module).get(kind, {}).items():
                    self.leaves[f"{place}.{kind}[{key!r}]"] = id(value)
            for cls in type(module).__mro__:
                if not cls.__module__.startswith(("torch.", "builtins", "abc", "typing")):
                    for key, value in vars(cls).items():
                        self.add(value, f"{cls.__name__}.{key}")

    def add(self, value: object, place: str) -> None:
        """Add the leaves below a value."""
        try:
            self._add(value, place)
        except RecursionError:
            raise InvalidInput(
                "the model holds something that is nested too deeply to be compared.", hint="keep it outside"
            ) from None

    def _add(self, value: object, place: str) -> None:
        if value is None or type(value) in _PLAIN:
            self.leaves[place] = value
        elif isinstance(value, Tensor):
            copy = value.detach().clone() if self._thorough and not hasattr(value, OWNER_ATTR) else None
            self.leaves[place] = SnapshotEntry(value, value._version, hasattr(value, OWNER_ATTR), copy)
        elif isinstance(value, np.ndarray | bytearray | memoryview | array):
            self.leaves[place] = bytes(np.ascontiguousarray(value).data)
        elif (state := _state(value)) is not None:
            self.leaves[place] = state
        elif isinstance(value, nn.Module) and id(value) in self._seen:
            return
        else:
            parts = _parts(value, place)
            if not parts:
                self.leaves[place] = value
            elif id(value) not in self._seen:
                self._seen[id(value)] = value
                for name, part in parts:
                    self._add(part, name)


def _state(value: object) -> RngState | None:
    """How far a source of random numbers has come; None for what is none."""
    match value:
        case torch.Generator():
            return RngState(value.get_state().numpy().tobytes())
        case np.random.Generator():
            return RngState(pickle.dumps(value.bit_generator.state))
        case np.random.RandomState():
            return RngState(pickle.dumps(value.get_state(legacy=False)))
        case random.Random():
            return RngState(value.getstate())
    return None


def _of_numpy() -> bytes:
    """How far numpy's common source has come: its memory, where it is what it is by default.

    To ask for it in numpy's way takes as long as three operations of torch, and it is asked for twice in every call.
    """
    source = np.random.mtrand._rand._bit_generator
    if isinstance(source, np.random.MT19937):
        return ctypes.string_at(source.ctypes.state_address, _MT19937)
    return pickle.dumps(source.state)


def _parts(value: object, place: str) -> list[tuple[str, object]]:
    """What a container or an object consists of; nothing for a leaf."""
    found: list[tuple[str, object]] = []
    if isinstance(value, _OPAQUE):
        return found
    if isinstance(value, Mapping):
        found += [(f"{place}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, list | tuple | deque):
        found += [(f"len({place})", len(value)), *((f"{place}[{i}]", part) for i, part in enumerate(value))]
    elif isinstance(value, set | frozenset):
        found.append((place, tuple(sorted(map(repr, value)))))
    if type(value).__module__.partition(".")[0] in sys.stdlib_module_names and not isinstance(value, SimpleNamespace):
        return found  # loggers, paths and files keep caches and locks, and none of their own accord an example
    if hasattr(value, "__dict__"):
        found += [(f"{place}.{key}", part) for key, part in vars(value).items()]
    for cls in type(value).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                found.append((f"{place}.{name}", getattr(value, name)))
    return found


def same(one: object, other: object) -> bool:
    """Whether two leaves are equal; numbers that are no numbers are equal to themselves.

    >>> same(float("nan"), float("nan")), same(1, True)
    (True, False)
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return bool(torch.equal(one, other) or (torch.equal(one.isnan(), other.isnan()) and _equal_numbers(one, other)))
    if isinstance(one, RngState):
        return one == other
    if type(one) in (*_PLAIN, tuple):
        return type(one) is type(other) and (one == other or repr(one) == repr(other))
    return one is other


def _equal_numbers(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one[~one.isnan()], other[~other.isnan()])
