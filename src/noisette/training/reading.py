"""Examples that are read when they are drawn: a Dataset, through a DataLoader whose batches are ours."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from noisette.batch import Batch, as_batch, joined, kind, size
from noisette.errors import InvalidInput, NoisetteError, Unreadable
from noisette.training.examples import Draw, Examples, Index, Part

__all__ = ["Read"]

Collate = Callable[[list[Any]], Any]


class Read(Examples):
    """The examples of a map-style Dataset, read by `workers` processes, `piece` examples at a time.

    Each example is read and collated by itself, as a batch of one, so that it cannot be padded, mixed or dropped
    because of others; examples that come out in one shape are then joined. About one batch of `expected` examples is
    read ahead. Workers hold no key of any generator; `seed` decides what they draw to change pictures with.

    >>> read = Read([(torch.ones(2), 0), (torch.zeros(2), 1)], None, workers=0, piece=8, expected=2, seed=0)
    >>> len(read), read.some(np.array([1]))
    (2, [[tensor([[0., 0.]]), tensor([1])]])
    """

    def __init__(
        self, dataset: Any, collate_fn: Collate | None, *, workers: int, piece: int, expected: float, seed: int | None
    ) -> None:
        self._dataset, self._count = _Counted(_with_numbers(dataset), len(dataset)), len(dataset)
        self._collate = _OneByOne(collate_fn or default_collate)
        self._workers, self._piece = workers, piece
        self._ahead = max(1, -(-int(expected) // (piece * max(1, workers))))
        self._seed = int.from_bytes(os.urandom(7), "big") if seed is None else seed

    def __len__(self) -> int:
        return self._count

    def like(self) -> Batch:
        """The first example, as a batch of one."""
        if not self._count:
            raise InvalidInput("the data set is empty.", hint="give at least one example")
        return self.some(np.zeros(1, dtype=np.int64))[0]

    def some(self, index: Index) -> list[Batch]:
        """The examples at `index`, read by this process."""
        return [batch for _, batch in _checked(self._collate(self._dataset.__getitems__(index.tolist())))]

    def stream(self, draws: Iterator[Draw]) -> Iterator[tuple[Draw, Iterator[Part]]]:
        """Every draw with its examples; one batch is read ahead where there are workers."""
        drawn: deque[tuple[Draw, int]] = deque()
        ours = _Pieces(draws, drawn, self._piece)
        loader = DataLoader(
            self._dataset,
            batch_sampler=ours,
            collate_fn=self._collate,
            num_workers=self._workers,
            prefetch_factor=self._ahead if self._workers else None,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(self._seed),
        )
        arriving = _started(loader)
        waiting: deque[list[Part]] = deque()
        while True:
            if not drawn and (piece := _next(arriving)) is not None:
                waiting.append(piece)
            if not drawn:
                return
            draw, count = drawn.popleft()
            yield draw, self._parts(count, waiting, arriving)

    def _parts(self, count: int, waiting: deque[list[Part]], arriving: Iterator[Any]) -> Iterator[Part]:
        for number in range(count):
            piece = waiting.popleft() if waiting else _next(arriving)
            if piece is None:
                raise Unreadable("the examples of a batch did not arrive.", hint="take the step again")
            yield from ((positions + number * self._piece, batch) for positions, batch in piece)


class _Pieces(Sampler[list[int]]):
    """Indices of draws in pieces; notes every draw, and in how many pieces it comes, as it is asked for."""

    def __init__(self, draws: Iterator[Draw], drawn: deque[tuple[Draw, int]], piece: int) -> None:
        self._draws, self._drawn, self._piece = draws, drawn, piece

    def __iter__(self) -> Iterator[list[int]]:
        for draw in self._draws:
            index = draw.index.tolist()
            found = [index[start : start + self._piece] for start in range(0, len(index), self._piece)]
            self._drawn.append((draw, len(found)))
            yield from found


@dataclass(frozen=True)
class _Failed:
    """Why an example cannot be used; what the error said may be private."""

    sentence: str
    hint: str


class _Counted(Dataset[Any]):
    """A data set that tells which example could not be read, and that its length is what it was."""

    def __init__(self, dataset: Any, count: int) -> None:
        self._dataset, self._count = dataset, count

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Examples with their numbers, or why they cannot be had."""
        if len(self._dataset) != self._count:
            sentence = f"the data set had {self._count} examples and has {len(self._dataset)} now."
            return [_Failed(sentence, "the sampling rate is planned for one number: keep it, or start a new run")]
        # not by a __getitems__ of its own, which would see all examples that were drawn, and might pad to the longest
        return [(number, self._one(number)) for number in numbers]

    def _one(self, number: int) -> Any:
        try:
            return self._dataset[number]
        except Exception as error:  # noqa: BLE001 - whatever a data set of the user's raises
            return _Failed(f"example {number} cannot be read ({type(error).__name__}).", "mend it, or leave it out")


@dataclass(frozen=True)
class _OneByOne:
    """Makes batches of examples that were collated each by itself, with their positions: one for every shape."""

    collate_fn: Collate

    def __call__(self, examples: list[Any]) -> list[Part] | _Failed:
        shapes: dict[Any, list[tuple[int, Batch]]] = {}
        for position, example in enumerate(examples):
            batch = example if isinstance(example, _Failed) else self._collated(*example)
            if isinstance(batch, _Failed):
                return batch
            shapes.setdefault(kind(batch), []).append((position, batch))
        groups = [tuple(zip(*found, strict=True)) for found in shapes.values()]
        return [(np.array(positions, dtype=np.int64), joined(batches)) for positions, batches in groups]

    def _collated(self, number: int, example: Any) -> Batch | _Failed:
        if isinstance(example, _Failed):
            return example
        try:
            batch = as_batch(self.collate_fn([example]))
            count = size(batch)
        except NoisetteError as error:
            return _Failed(error.sentence, error.hint)
        except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
            return _Failed(f"collate_fn fails on example {number} ({type(error).__name__}).", "it gets a list of one")
        if count != 1:
            return _Failed(
                f"collate_fn makes {count} examples of one.",
                "let it keep every example, once: it is given a list of one at a time",
            )
        return batch


def _started(loader: DataLoader[Any]) -> Iterator[Any]:
    """Starts to read. A worker that dies shows when its piece is asked for, and not in the middle of a step.

    torch would raise its error from a signal handler, wherever this process is: between a payment and its release, or
    in a model, where it looks like an error of the model.
    """
    arriving: Any = iter(loader)
    if getattr(arriving, "_worker_pids_set", False):
        torch._C._remove_worker_pids(id(arriving))
        arriving._worker_pids_set = False
    found: Iterator[Any] = arriving
    return found


def _checked(found: list[Part] | _Failed) -> list[Part]:
    if isinstance(found, _Failed):
        raise Unreadable(found.sentence, hint=found.hint)
    return found


def _next(arriving: Iterator[Any]) -> list[Part] | None:
    """The next piece; None after the last one."""
    try:
        found = next(arriving, None)
    except (RuntimeError, OSError, EOFError) as error:  # a worker was killed, perhaps while it handed over a tensor
        raise Unreadable(
            "a process that reads examples died.",
            hint="nothing was released or paid for this batch: give it more memory or fewer workers, and go on",
        ) from error
    return None if found is None else _checked(found)


def _with_numbers(dataset: Any) -> Any:
    """A Hugging Face data set gives lists unless it is told to give tensors."""
    plain = getattr(dataset, "format", None)
    if hasattr(dataset, "with_format") and isinstance(plain, dict) and plain.get("type") is None:
        return dataset.with_format("torch")
    return dataset
