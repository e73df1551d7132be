"""Mistakes in one's own loop, seen at once: raw gradients in ``grad``, and gradients that nobody used."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from operator import itemgetter, not_
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from noisette._gradients import Own
from noisette.errors import InvalidInput

__all__ = ["Guard"]

_FIRST = 4  # the second mistake is made in every turn, in every second or in none
_BLOCK = 1 << 20  # numbers that are converted at a time


class Guard:
    """Watches the parameters of a private run between its steps, for as long as something holds the guard.

    ``loss.backward()`` would add raw gradients to the private ones. ``zero_grad()`` before ``optimizer.step()``, or an
    optimizer over the parameters of another model, makes a model that never moves. An optimizer that steps every k-th
    turn leaves gradients to be overwritten that were paid for; without any optimizer, releases are taken as they come.

    >>> layer = nn.Linear(2, 1)
    >>> guard = Guard(layer.parameters())
    """

    steps: ClassVar[int] = 0  # that any optimizer of the process has begun since the first guard was made

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = tuple(parameters)
        self.on, self._written, self._sums = True, 0, list[float]()
        self._last = self._wasted = False
        self._steps = Guard.steps
        refusal = _Refusal(self)
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(refusal)  # type: ignore[no-untyped-call]
        _listen()
        with _LOCK:
            _GUARDS[self] = frozenset(map(id, self._parameters))

    def on_grads_written(self, *, last: bool) -> None:
        """Private gradients have just been written; after the `last` ones, the guard rests once they are used."""
        self._written += 1
        self._last, self._steps = last, Guard.steps
        if (last or self._written <= _FIRST) and self._something():
            self._sums = self._places()

    def clear_grads(self) -> None:
        """Let the last gradients go: the memory is needed for the next ones."""
        self._sums = []
        for parameter in self._parameters:
            parameter.grad = None

    def disarm(self) -> None:
        """The model may be used for anything, until private gradients are written again."""
        self.on, self._sums = False, []

    def used(self) -> None:
        """An optimizer of the parameters begins a step: at a learning rate of zero, as in a warm-up, nothing moves."""
        if self._sums and self._something():
            self._sums = []
            self.on = not self._last

    def assert_used(self) -> None:
        """Raise where the parameters are where they were, and the last gradients are gone or were nobody's.

        Gradients that are still there may have been looked at only, once.
        """
        if not self._sums or self._sums != self._places():
            return
        if not self._something():
            raise InvalidInput(
                "the private gradients of the last step were cleared before an optimizer used them.",
                hint="call optimizer.step() in the loop, without zero_grad() before it",
            )
        if self._steps != Guard.steps:  # one of the parameters would have let the sums go
            raise InvalidInput(
                "an optimizer took a step over other parameters than those of the private run, which did not move.",
                hint="make the optimizer of the model that you gave, after noisette.fix and the like",
            )

        if self._wasted and self._waiting():
            raise InvalidInput(
                "no optimizer has used the private gradients of two steps, which were paid for.",
                hint="call optimizer.step() in every turn; instead of adding gradients of several turns, plan a larger "
                "batch, which needs no more memory",
            )
        self._wasted = True

    def _waiting(self) -> bool:
        """Whether there is an optimizer over the parameters at all: torch keeps no list of them."""
        there = gc.get_objects()
        optimizers = compress(there, map(issubclass, map(type, there), repeat(Optimizer)))
        return not _GUARDS[self].isdisjoint(_moved_by(optimizers))

    def _something(self) -> bool:
        """Whether any gradient is there: a denoiser may leave none."""
        return any(p.grad is not None and bool(p.grad.any()) for p in self._parameters)

    def _places(self) -> list[float]:
        parts = (torch.split(p.detach().reshape(-1), _BLOCK) for p in self._parameters)
        return [sum(float(part.sum(dtype=torch.float64)) for part in each) for each in parts]


class _Refusal(Own):
    """Raises where a raw gradient comes into a parameter, for as long as the guard is held, and on."""

    def __init__(self, guard: Guard) -> None:
        self._guard = weakref.ref(guard)

    def __call__(self, parameter: Tensor) -> None:
        guard = self._guard()
        if guard is not None and guard.on:
            parameter.grad = None
            raise InvalidInput(
                "backward() has put a raw gradient into a parameter of a private run.",
                hint="leave backward() out: every turn of the loop sets the gradients; to look at a loss, "
                "use torch.no_grad(); to use the model for something else, call close() of the run first",
            )


_GUARDS: weakref.WeakKeyDictionary[Guard, frozenset[int]] = weakref.WeakKeyDictionary()
"""Those that are held, in the order in which they were made, with the ids of their parameters."""

_LOCK = threading.Lock()


@functools.cache
def _listen() -> None:
    """Have every step of any optimizer noticed by all guards that are held, for as long as the process lives.

    The hook is never removed: torch goes through its hooks while they are called, and removing one then is an error.
    """
    register_optimizer_step_pre_hook(_notice)


def _notice(optimizer: Optimizer, *_: Any) -> None:
    moved = set(_moved_by([optimizer]))
    with _LOCK:
        Guard.steps += 1
        guards = dict(_GUARDS.items())
    for guard in compress(guards, map(not_, map(moved.isdisjoint, guards.values()))):
        guard.used()


def _moved_by(optimizers: Iterable[object]) -> Iterator[int]:
    """The ids of all parameters that optimizers move; one that is being made has none yet.

    No line runs for each object or optimizer, here and where this is called: how many there are is not up to a run,
    which would seem to take another path each time.
    """
    groups = chain.from_iterable(map(getattr, optimizers, repeat("param_groups"), repeat(())))
    return map(id, chain.from_iterable(map(itemgetter("params"), groups)))
