"""What people do elsewhere and no accountant here bounds: shuffled passes over the data, batches of a fixed size."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from noisette.errors import InvalidInput

__all__ = ["external_batching_error", "reject_loader_options"]

P = ParamSpec("P")
R = TypeVar("R")

_FOREIGN = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


def external_batching_error(what: str) -> InvalidInput:
    """The error for batches that `what` would draw."""
    return InvalidInput(
        f"{what} draws batches of its own: of a fixed size or from shuffled passes, they are another mechanism, whose "
        "epsilon is not that of Poisson sampling.",
        hint="give the data set, and the expected batch to plan(batch=...): batches are drawn by Poisson sampling",
    )


def reject_loader_options(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which refuses a DataLoader's options with the reason, and not as arguments that are not known."""

    @wraps(function)
    def wrapped(*args: P.args, **options: P.kwargs) -> R:
        for name in _FOREIGN:
            if name in options:
                raise external_batching_error(f"what {name}= asks for")
        return function(*args, **options)

    return wrapped
