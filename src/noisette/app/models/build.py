"""Models by name, as recipes and the command line give them."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from noisette._spec import whole
from noisette.app.models._import_path import imported
from noisette.app.models.convolutional import cifar_cnn, digits_cnn, maps_cnn, mnist_cnn
from noisette.app.models.dense import linear, mlp
from noisette.errors import InvalidInput

__all__ = ["build"]

# Every model with the size of what it is made for, where a letter is any number; None is anything.
_MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[int | str, ...] | None]] = {
    "cifar_cnn": (cifar_cnn, (3, 32, 32)),
    "digits_cnn": (digits_cnn, (1, 8, 8)),
    "linear": (linear, None),
    "maps_cnn": (maps_cnn, ("C", "H", "W")),
    "mlp": (mlp, None),
    "mnist_cnn": (mnist_cnn, (1, 28, 28)),
}


_MOST_PARAMETERS = 100_000_000
"""A step holds several vectors of this many numbers of 64 bits."""


def build(name: str, dataset_shape: tuple[int, ...], classes: int, /, *, seed: int = 0, **options: Any) -> nn.Module:
    """The model called `name` for examples of `dataset_shape` (without the leading N) in `classes` classes.

    A `name` like ``my_package.nets:Net`` is that class or function of yours. Of ``classes``, ``inputs`` (their number)
    and ``shape`` it is given those that it takes, beside `options`.

    Initial weights are public, so they come from `seed` alone: the same on every machine, whatever was drawn before,
    and with torch's own generators left as they were.

    >>> build("mlp", (1, 8, 8), 10, hidden=(32,), activation="relu")
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=64, out_features=32, bias=True)
      (2): ReLU()
      (3): Linear(in_features=32, out_features=10, bias=True)
    )
    """
    function, wanted = (_own(name), None) if ":" in name else _bundled(name)
    shape = tuple(dataset_shape)
    if wanted is not None and not _fits(shape, wanted):
        others = [other for other, (_, size) in _MODELS.items() if size is None or _fits(shape, size)]
        raise InvalidInput(
            f"{name} wants {_size(wanted)}, the data has {_size(shape)}.", hint=f"use {' or '.join(sorted(others))}"
        )
    known = {"classes": classes, "inputs": math.prod(shape), "shape": shape}
    takes = inspect.signature(function).parameters
    given = {name: value for name, value in known.items() if name in takes}
    allowed = [option for option in takes if option not in given]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        hint = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
        raise InvalidInput(f"{name} has no option {unknown[0]!r}.", hint=hint)
    with torch.device("meta"):  # takes no memory
        size = sum(parameter.numel() for parameter in function(**given, **options).parameters())
    if size > _MOST_PARAMETERS:
        raise InvalidInput(f"{name} would have {size:,} parameters.", hint=f"{_MOST_PARAMETERS:,} are the most")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(whole("seed", seed, least=0, most=2**64 - 1))
        return function(**given, **options)


def _bundled(name: str) -> tuple[Callable[..., nn.Module], tuple[int | str, ...] | None]:
    if name not in _MODELS:
        near = difflib.get_close_matches(name, _MODELS, n=1, cutoff=0.4) or list(_MODELS)
        raise InvalidInput(
            f"there is no model {name!r}.",
            hint=f"did you mean {', '.join(near)}? One of your own is called package.module:Name",
        )
    return _MODELS[name]


def _own(path: str) -> Callable[..., nn.Module]:
    """The class or function behind an import path, which makes a module."""
    found = imported(path)
    if not callable(found):
        raise InvalidInput(f"{path!r} makes no model.", hint="name a class or function that returns a torch module")
    made: Callable[..., nn.Module] = found
    return made


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(isinstance(size, str) or n == size for n, size in pairs)


def _size(shape: tuple[int | str, ...]) -> str:
    return "x".join(str(n) for n in shape)
