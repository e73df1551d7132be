"""What closes over all of the data: an epsilon for one example says nothing where every loss has seen them all."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette._gradients.state_guard import behind
from noisette.errors import InvalidInput

__all__ = ["refuse_closed_over"]

_FEW = 32  # rows of data sets so small that many tables have as many by chance
_DEEP = 3  # containers in containers that are looked into

_Named = Iterator[tuple[str, object]]


def refuse_closed_over(model: nn.Module, goal: object, count: int) -> None:
    """Raise InvalidInput where the model or the objective holds something with a row for each of the examples.

    Looked at are what a function closes over, is bound to, has as defaults or reads as a global variable, attributes
    of callable objects, and buffers and other attributes of modules that are not torch's own. Parameters are not.

    >>> refuse_closed_over(nn.Linear(2, 1), nn.MSELoss(), 100)
    """
    if count < _FEW:
        return
    for place, value in (*_of_goal(goal), *_of_model(model)):
        if _rows(value) == count:
            raise InvalidInput(
                f"{place} has {count:,} rows, as many as there are examples, and is seen with every one of them.",
                hint="what is known of an example belongs into the data; one graph of all examples, or all others to "
                "compare with, have no epsilon here; a public table that has as many rows by chance can be an "
                "nn.Parameter(table, requires_grad=False)",
            )


def _rows(value: object) -> int | None:
    """How many rows a tensor, an array, a data set or a list of tensors has; None of anything else."""
    if isinstance(value, nn.Parameter | type):
        return None
    if isinstance(value, Dataset | list | tuple):
        tensors = isinstance(value, Dataset) or all(isinstance(part, Tensor) for part in value)
        return len(value) if tensors and hasattr(value, "__len__") else None
    shape = getattr(value, "shape", None)
    return shape[0] if isinstance(shape, tuple) and shape else None


def _of_goal(goal: object) -> _Named:
    functions = set[FunctionType]()
    for part in behind(goal):
        if isinstance(part, FunctionType):
            yield from _globals(part, functions)
        elif isinstance(part, nn.Module):
            yield from _of_model(part)
        elif callable(part) and hasattr(part, "__dict__"):
            for name, value in vars(part).items():
                yield from _inside(f"{name!r} of {type(part).__name__}", value)
        else:
            yield from _inside("what the objective closes over", part)


def _of_model(model: nn.Module) -> _Named:
    functions = set[FunctionType]()
    for name, module in model.named_modules():
        if type(module).__module__.partition(".")[0] == "torch":
            continue
        place = f"{type(module).__name__} {name!r}" if name else type(module).__name__
        held = {key: value for key, value in vars(module).items() if key not in vars(nn.Module())}
        for key, value in {**held, **module._buffers}.items():
            yield from _inside(f"{key!r} of {place}", value)
        for part in behind(type(module).forward):
            if isinstance(part, FunctionType):
                yield from _globals(part, functions)
            else:
                yield from _inside(f"what {place} closes over", part)


def _globals(function: FunctionType, seen: set[FunctionType]) -> _Named:
    """Global variables that a function reads, and those that functions of the same file read for it."""
    if function in seen:
        return
    seen.add(function)
    codes: list[CodeType] = [function.__code__]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
        for one in dis.get_instructions(code):
            value = function.__globals__.get(one.argval) if one.opname == "LOAD_GLOBAL" else None
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                yield from _globals(value, seen)
            elif value is not None:
                yield from _inside(f"the global variable {one.argval!r}", value)


def _inside(place: str, value: Any, deep: int = _DEEP) -> _Named:
    yield place, value
    if deep and isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(place, part, deep - 1)
