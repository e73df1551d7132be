"""Arguments of the entrance that are easily mistaken: each is what it must be, or is refused with the way out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from noisette._spec import what
from noisette.accounting import Ledger
from noisette.denoisers import Denoiser, Identity
from noisette.errors import InvalidInput

__all__ = ["as_denoiser", "as_ledgers", "assert_materialized", "check_loss"]


def check_loss(goal: Any) -> None:
    """Raise unless `goal` can be called with outputs and targets, or with a model and a batch.

    >>> check_loss(nn.CrossEntropyLoss())
    """
    if isinstance(goal, type):
        raise InvalidInput(f"the goal is {what(goal)}, not a loss.", hint=f"make one of it: {_made(goal)}")
    if not callable(goal):
        raise InvalidInput(
            f"the goal is {what(goal)}, which cannot be called.",
            hint="give a loss such as nn.CrossEntropyLoss(), or a function objective(model, batch)",
        )


def as_denoiser(denoiser: Any) -> Denoiser:
    """The denoiser that was given; the one that does nothing where none was."""
    if denoiser is None:
        return Identity()
    if isinstance(denoiser, Denoiser):
        return denoiser
    hint = "give one such as KS()"
    if isinstance(denoiser, type):
        hint = f"make one of it: {_made(denoiser)}"
    elif isinstance(denoiser, str):
        hint = "read a text by parse(text, Denoiser)"
    raise InvalidInput(f"the denoiser is {what(denoiser)}, not a Denoiser.", hint=hint)


def as_ledgers(ledger: Any) -> tuple[Ledger, ...]:
    """One ledger, several or none, as a tuple."""
    if ledger is None or isinstance(ledger, Ledger):
        return () if ledger is None else (ledger,)
    several = isinstance(ledger, Sequence) and not isinstance(ledger, str | bytes)
    for one in ledger if several else (ledger,):
        if not isinstance(one, Ledger):
            path = os.fspath(one) if isinstance(one, str | os.PathLike) else "l.jsonl"
            raise InvalidInput(
                f"{'one of the ledgers' if several else 'the ledger'} is {what(one)}, not a Ledger.",
                hint=f'open it: Ledger("{path}")',
            )
    return tuple(ledger)


def assert_materialized(parameters: Iterable[nn.Parameter]) -> None:
    """Raise where parameters have shapes only: a plan can be made of them, a step cannot."""
    if any(p.device.type == "meta" for p in parameters):
        raise InvalidInput(
            "the model has parameters on the meta device, where they are no numbers.",
            hint="move it to a device, with weights: model.to_empty(device='cpu'), then load or initialise them",
        )


def _made(cls: type) -> str:
    return f"nn.{cls.__name__}()" if getattr(nn, cls.__name__, None) is cls else f"{cls.__name__}()"
