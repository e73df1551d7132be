"""Mistakes in one's own loop, seen at once: raw gradients in ``grad``, and gradients that nobody used."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from noisette.errors import InvalidInput

__all__ = ["Guard"]

_FIRST = 3  # the second mistake is made in every turn or in none
_BLOCK = 1 << 20  # numbers that are converted at a time


class Guard:
    """Watches the parameters of a private run between its steps, for as long as something holds the guard.

    ``loss.backward()`` would add raw gradients to the private ones. ``zero_grad()`` before ``optimizer.step()``, or an
    optimizer over the parameters of another model, makes a model that never moves.

    >>> layer = nn.Linear(2, 1)
    >>> guard = Guard(layer.parameters())
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = tuple(parameters)
        self.on, self._written, self._sums = True, 0, list[float]()
        self._last = self._elsewhere = False
        self._watch: RemovableHandle | None = None
        alive = weakref.ref(self)

        def refuse(parameter: Tensor) -> None:
            guard = alive()
            if guard is not None and guard.on:
                parameter.grad = None
                raise InvalidInput(
                    "backward() has put a raw gradient into a parameter of a private run.",
                    hint="leave backward() out: every turn of the loop sets the gradients; to look at a loss, "
                    "use torch.no_grad(); to use the model for something else, call close() of the run first",
                )

        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(refuse)  # type: ignore[no-untyped-call]

    def written(self, *, last: bool) -> None:
        """Private gradients have just been written; after the `last` ones, the guard rests once they are used."""
        self._written += 1
        self._last, self._elsewhere = last, False
        if (last or self._written <= _FIRST) and self._something():
            self._sums = self._places()
            self._watch = register_optimizer_step_pre_hook(_noticed(self))
            weakref.finalize(self, self._watch.remove)

    def clear(self) -> None:
        """Let the last gradients go: the memory is needed for the next ones."""
        self._forget()
        for parameter in self._parameters:
            parameter.grad = None

    def rest(self) -> None:
        """The model may be used for anything, until private gradients are written again."""
        self.on = False
        self._forget()

    def used_by(self, optimizer: Optimizer) -> None:
        """An optimizer begins a step: at a learning rate of zero, which schedules warm up from, nothing moves."""
        moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not moved & set(map(id, self._parameters)):
            self._elsewhere = True
        elif self._something():
            self._forget()
            self.on = not self._last

    def check_used(self) -> None:
        """Raise where the parameters are where they were, and the last gradients are gone or were nobody's."""
        if not self._sums or self._sums != self._places():
            return
        if not self._something():
            raise InvalidInput(
                "the private gradients of the last step were cleared before an optimizer used them.",
                hint="call optimizer.step() in the loop, without zero_grad() before it",
            )
        if self._elsewhere:
            raise InvalidInput(
                "an optimizer took a step over other parameters than those of the private run, which did not move.",
                hint="make the optimizer of the model that you gave, after noisette.fix and the like",
            )

    def _forget(self) -> None:
        self._sums = []
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def _something(self) -> bool:
        """Whether any gradient is there: a denoiser may leave none."""
        return any(p.grad is not None and bool(p.grad.any()) for p in self._parameters)

    def _places(self) -> list[float]:
        parts = (torch.split(p.detach().reshape(-1), _BLOCK) for p in self._parameters)
        return [sum(float(part.sum(dtype=torch.float64)) for part in each) for each in parts]


def _noticed(guard: Guard) -> Any:
    """What is called before every step of any optimizer, for as long as the guard is held."""
    alive = weakref.ref(guard)

    def notice(optimizer: Optimizer, *_: Any) -> None:
        found = alive()
        if found is not None:
            found.used_by(optimizer)

    return notice
