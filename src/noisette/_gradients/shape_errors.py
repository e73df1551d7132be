"""A model, a loss and examples that do not fit: what is said of it, and what is not where examples are private."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from noisette._gradients.state_guard import StrategyNotApplicable
from noisette._pytree import Batch
from noisette.errors import InvalidInput, NoisetteError

__all__ = ["as_user_error", "on_private"]

_T = TypeVar("_T")


@contextmanager
def as_user_error(model: nn.Module, made: Batch) -> Iterator[None]:
    """Whatever fails inside on `made` examples becomes an InvalidInput; not for real ones, of which an error may tell.

    >>> with as_user_error(nn.Linear(2, 1), torch.zeros(4, 3)):
    ...     raise RuntimeError("shapes do not fit. See the manual")
    Traceback (most recent call last):
    noisette.errors.InvalidInput: Linear or the loss cannot be run on made-up examples like the data (examples: float32
    (3,)): shapes do not fit.
    <BLANKLINE>
    hint: give inputs in the type of the model (float32), classes as int64 (N,), and other targets in the shape of the
    outputs; or an objective(model, batch) that runs the model
    """
    try:
        yield
    except (NoisetteError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        said = str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__
        raise InvalidInput(
            f"{type(model).__name__} or the loss cannot be run on made-up examples like the data "
            f"({_kinds(made)}): {said}.",
            hint=_hint(said, next(model.parameters()).dtype),
        ) from error


def on_private(run: Callable[[], _T]) -> _T:
    """What `run` returns; what it raises on private examples may tell of them, and something else is raised.

    That a way no longer fits tells of the model alone: it ran synthetic examples of every shape that it is given.
    """
    memory = changed = False
    try:
        return run()
    except NoisetteError:
        raise
    except StrategyNotApplicable:
        changed = True
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
    # not while the first error is handled: it would be kept as the context of this one
    if changed:
        raise Withheld(
            "the model computes its gradients otherwise than when it was checked.",
            hint="merge adapters, tie weights and exchange layers before make_private: make a new run after a change",
        )
    if memory:
        raise Withheld("a batch does not fit into memory.", hint="give a smaller chunk, or take plan(..., cap=True)")
    raise Withheld(
        "the model or the loss fails on an example that was drawn.",
        hint="are all targets and tokens below the number of classes and of embeddings? run both on all of your data",
    )


class Withheld(InvalidInput):
    """An error on private examples: its text is one of a few, whatever the examples are."""


def withheld(run: Callable[[], _T]) -> _T:
    """What `run` returns; errors that name what a model did with a private example are exchanged for one that does not.

    >>> withheld(lambda: 1)
    1
    """
    try:
        return run()
    except Withheld:
        raise
    except InvalidInput:
        pass  # and not raised from here: it would be kept as the context of the next one
    raise Withheld(
        "the model or the loss does with an example that was drawn what it did not do when it was checked.",
        hint="let it keep nothing from one example to the next, draw random numbers with torch alone, and leave modes, "
        "hooks and attributes as they are",
    )


def _hint(said: str, dtype: torch.dtype) -> str:
    if said == "'Tensor' object is not callable":
        return "is it an objective? then give a function whose first parameter is called model"
    if "modified by an inplace operation" in said:
        return "compute nothing in place in the model; noisette.fix(model) does that for activations"
    if "bounding box" in said.lower() or "targets should not be none" in said.lower():
        return (
            "a model for detection takes lists of images and of targets: give "
            "noisette.objectives.per_example(objective) that makes them and adds up the losses; made-up boxes are any "
            "numbers between 0 and 1, so let an example have corners and sizes, and let the objective add them, as "
            "torch.cat([at, at + size], 1)"
        )
    return (
        f"give inputs in the type of the model ({_short(dtype)}), classes as int64 (N,), and other targets in the "
        "shape of the outputs; or an objective(model, batch) that runs the model"
    )


def _kinds(batch: Batch) -> str:
    """The type and the shape of every part of an example."""
    return ", ".join(
        f"examples{keystr(path)}: {_short(leaf.dtype)} {tuple(leaf.shape[1:])}"
        for path, leaf in tree_flatten_with_path(batch)[0]
        if isinstance(leaf, Tensor)
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
