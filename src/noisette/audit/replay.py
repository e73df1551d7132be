"""The replay check: two neighbouring data sets, the same releases, a stopped clock. Nothing that shows may differ.

It finds leaks that no statistics see: a loss that is printed, a run that stops when the private loss is low, a file
whose length tells the size of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from noisette.audit._observer import Observed, observe
from noisette.errors import InvalidInput

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """Where two neighbouring data sets could be told apart although every release was the same."""

    differences: tuple[str, ...]
    releases: int

    @property
    def identical(self) -> bool:
        """Whether nothing differed."""
        return not self.differences


def replay(train: Callable[[Any], Any], data: Any, neighbour: Any) -> Replay:
    """Run `train` on `data` and on `neighbour` with the same releases, and compare all that shows.

    ``train(data)`` trains with this library and may print, log, write files below the current folder, and return
    something. It runs four times, in empty folders: to make releases, with these twice on `data`, where nothing may
    differ, and on `neighbour`. Compared are the lines run in this package and in the file of `train` outside the
    private sum, printed output, log records, files, shapes and what is returned. `data` and `neighbour` should be
    equally large: their size is public.

    **Formal guarantees.** None: what two data sets do not show, others may. Timing and memory are not looked at.

    >>> from noisette import Mechanism, make_private
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> claim = Mechanism(L2(dim=3), Gaussian(scale=1.0), rate=0.5, steps=4)
    >>> def train(rows):
    ...     for step in make_private(torch.nn.Linear(2, 1), torch.nn.MSELoss(), (rows, rows[:, :1]), claim):
    ...         print("step", step)
    >>> replay(train, torch.zeros(9, 2), torch.ones(9, 2)).identical
    True
    """
    first = observe(train, data, None)
    if not first.releases:
        raise InvalidInput(
            "the training released nothing.", hint="give a function that trains with make_private or a Trainer"
        )
    one, again = (observe(train, data, first.releases) for _ in range(2))
    unsteady = [words for _, words in _differences(one, again)]
    if unsteady:
        raise InvalidInput(
            f"two runs on the same data differ: {unsteady[0]}.", hint="fix seeds, and leave clocks and process ids out"
        )
    other = observe(train, neighbour, first.releases)
    return Replay(tuple(f"{kind}: {words}" for kind, words in _differences(one, other)), len(first.releases))


def _differences(a: Observed, b: Observed) -> Iterator[tuple[str, str]]:
    if a.flow != b.flow:
        pairs = (pair for pair in zip(a.flow, b.flow, strict=False) if pair[0] != pair[1])
        (file, name, line), (_, other, there) = next(pairs, (_end(a.flow, b.flow), _end(b.flow, a.flow)))
        yield "control flow", f"{file} {name} line {line} against {other} line {there}"
    if a.output != b.output:
        rows = zip(a.output.splitlines(), b.output.splitlines(), strict=False)
        where = next((n for n, (x, y) in enumerate(rows, 1) if x != y), None)
        yield "output", "it is longer for one" if where is None else f"line {where} of what is printed differs"
    if a.logs != b.logs:
        yield "logs", "log records differ"
    for name in sorted(a.files.keys() | b.files.keys()):
        if a.files.get(name) != b.files.get(name):
            yield "files", f"{name} differs"
    if a.shapes != b.shapes:
        yield "shapes", "a released vector or a gradient has another shape"
    if not _equal(a.result, b.result):
        yield "result", "what the training returns differs"


def _end(flow: list[tuple[str, str, int]], other: list[tuple[str, str, int]]) -> tuple[str, str, int]:
    return flow[len(other)] if len(flow) > len(other) else ("", "the end", 0)


def _equal(a: Any, b: Any) -> bool:
    """Equal bit by bit, also inside modules, mappings and sequences."""
    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        return _equal(dict(a.state_dict()), dict(b.state_dict()))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if type(a) is not type(b):
        return False
    # objects that only know who they are have nothing to compare
    return "__eq__" not in {name for base in type(a).__mro__[:-1] for name in vars(base)} or bool(a == b)
