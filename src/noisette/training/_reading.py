"""Examples that are read when they are drawn: a Dataset, through a DataLoader whose batches are ours."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from noisette._private import silence
from noisette._pytree import Batch, Packed, as_batch, change, joined, kind, packed, size, unpacked
from noisette.errors import InvalidInput, NoisetteError, Unreadable
from noisette.training._datasets import BatchDraw, ExampleChunk, Examples, Index

__all__ = ["LoaderExamples"]

_TRIM = 32  # batches after which memory is given back: asking the system for it again takes as long as a small step

Collate = Callable[[list[Any]], Any]


class LoaderExamples(Examples):
    """The examples of a map-style Dataset, read by `workers` processes, `piece` examples at a time.

    Each example is read and collated by itself, as a batch of one, so that it cannot be padded, mixed or dropped
    because of others; examples that come out in one shape are then joined. About one batch of `expected` examples is
    read ahead. Workers hold no key of any generator; `seed` decides what they draw to change pictures with. Numbers
    that are no tensors become tensors of type `dtype`.

    >>> read = LoaderExamples([([1.0, 1.0], 0), ([0.0, 0.0], 1)], None, workers=0, piece=8, expected=2)
    >>> len(read), read.get(np.array([1]))
    (2, [(tensor([[0., 0.]]), tensor([1]))])
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Collate | None,
        *,
        workers: int,
        piece: int,
        expected: float,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._count = len(dataset)
        self._dataset = _OneByOne(_with_numbers(dataset), self._count, collate_fn, dtype)
        self._workers, self._piece = workers, piece
        self._ahead = max(1, -(-int(expected) // (piece * max(1, workers))))
        # every stream of batches draws its own seed for workers from this one
        self._seeds = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big") if seed is None else seed)

    def __len__(self) -> int:
        return self._count

    def spec_batch(self) -> Batch:
        """The first example, as a batch of one."""
        if not self._count:
            raise InvalidInput("the data set is empty.", hint="give at least one example")
        return self.get(np.zeros(1, dtype=np.int64))[0]

    def get(self, index: Index) -> list[Batch]:
        """The examples at `index`.

        Where there are workers, one reads them: a data set that opens a file when it is first read would else hand
        the open file on to all of them, and they would move about in it together.
        """
        arriving = self._arriving([index.tolist()], min(1, self._workers))
        return [batch for _, batch in _next(arriving) or []]

    def stream(self, draws: Iterator[BatchDraw]) -> Iterator[tuple[BatchDraw, Iterator[ExampleChunk]]]:
        """Every draw with its examples; one batch is read ahead where there are workers."""
        drawn: deque[tuple[BatchDraw, int]] = deque()
        arriving = self._arriving(_Pieces(draws, drawn, self._piece), self._workers)
        waiting: deque[list[ExampleChunk]] = deque()
        for number in itertools.count(1):
            if not drawn and (piece := _next(arriving)) is not None:
                waiting.append(piece)
            if not drawn:
                return
            draw, count = drawn.popleft()
            yield draw, self._parts(count, waiting, arriving)
            if number % _TRIM == 0:
                _give_back()

    def _arriving(self, pieces: Iterable[list[int]], workers: int) -> Iterator[Any]:
        """Starts to read pieces. A worker that dies shows when its piece is asked for, and not in the middle of a step.

        torch would raise its error from a signal handler, wherever this process is: between a payment and its release,
        or in a model, where it looks like an error of the model.
        """
        loader = DataLoader(
            self._dataset,
            batch_sampler=pieces,
            collate_fn=_grouped,
            num_workers=workers,
            prefetch_factor=self._ahead if workers else None,
            pin_memory=torch.cuda.is_available(),
            generator=self._seeds,
        )
        arriving: Any = iter(loader)
        if getattr(arriving, "_worker_pids_set", False):
            torch._C._remove_worker_pids(id(arriving))
            arriving._worker_pids_set = False
        found: Iterator[Any] = arriving
        return found

    def _parts(self, count: int, waiting: deque[list[ExampleChunk]], arriving: Iterator[Any]) -> Iterator[ExampleChunk]:
        for number in range(count):
            piece = waiting.popleft() if waiting else _next(arriving)
            if piece is None:
                raise Unreadable("the examples of a batch did not arrive.", hint="take the step again")
            yield from ((positions + number * self._piece, batch) for positions, batch in piece)


class _Pieces(Sampler[list[int]]):
    """Indices of draws in pieces; notes every draw, and in how many pieces it comes, as it is asked for."""

    def __init__(self, draws: Iterator[BatchDraw], drawn: deque[tuple[BatchDraw, int]], piece: int) -> None:
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


class _OneByOne(Dataset[Any]):
    """Examples as batches of one, each read, collated and copied before the next; or why one cannot be had."""

    def __init__(self, dataset: Any, count: int, collate_fn: Collate | None, dtype: torch.dtype) -> None:
        self._dataset, self._count, self._collate_fn, self._dtype = dataset, count, collate_fn, dtype

    def __getitem__(self, number: int) -> Batch | _Failed:
        with silence():  # here too: workers are processes of their own
            return self._one(number)

    def _one(self, number: int) -> Batch | _Failed:
        # not through a __getitems__ of its own, which would see all examples of a draw, and might pad to the longest
        if len(self._dataset) != self._count:
            return _Failed(
                f"the data set had {self._count} examples and has {len(self._dataset)} now.",
                "the sampling rate is planned for one number: keep it, or start a new run",
            )
        try:
            example = self._dataset[number]
        except Exception as error:  # noqa: BLE001 - whatever a data set of the user's raises
            return _Failed(f"example {number} cannot be read ({type(error).__name__}).", "mend it, or leave it out")
        try:
            batch = self._collated(example)
        except NoisetteError as error:
            return _Failed(error.sentence, error.hint)
        except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
            return _Failed(f"collate_fn fails on example {number} ({type(error).__name__}).", "it gets a list of one")
        try:
            count = size(batch)
        except NoisetteError:  # whose sentence tells lengths
            count = -1
        if count != 1:
            return _Failed(
                f"what collate_fn makes of example {number} is not one row of each part.",
                "let it keep every example, once: it is given a list of one at a time",
            )
        return batch

    def _collated(self, example: Any) -> Batch:
        if self._collate_fn is None:
            return change(as_batch(example, self._dtype, one=True), lambda part: part[None].clone())
        # a copy, since the function may use its memory again
        return change(as_batch(self._collate_fn([example]), self._dtype), Tensor.clone)


def _grouped(examples: Sequence[Batch | _Failed]) -> tuple[list[Index], Packed] | _Failed:
    """Batches of all examples that have one shape, with their positions."""
    shapes: dict[Any, list[tuple[int, Batch]]] = {}
    for position, example in enumerate(examples):
        if isinstance(example, _Failed):
            return example
        shapes.setdefault(kind(example), []).append((position, example))
    groups = [tuple(zip(*found, strict=True)) for found in shapes.values()]
    positions = [np.array(numbers, dtype=np.int64) for numbers, _ in groups]
    return positions, packed([joined(batches) for _, batches in groups])


def _next(arriving: Iterator[Any]) -> list[ExampleChunk] | None:
    """The next piece; None after the last one."""
    try:
        found = next(arriving, None)
    except (RuntimeError, OSError, EOFError) as error:  # a worker was killed, perhaps while it handed over a tensor
        raise Unreadable(
            "a process that reads examples died.",
            hint="nothing was released or paid for this batch: give it more memory or fewer workers, and go on",
        ) from error
    if isinstance(found, _Failed):
        raise Unreadable(found.sentence, hint=found.hint)
    return None if found is None else list(zip(found[0], unpacked(found[1]), strict=True))


def _give_back() -> None:
    """Return freed memory to the system: batches of ever other sizes leave holes, which the C library would keep."""
    with suppress(OSError, AttributeError):  # the C libraries of other systems have no such call
        ctypes.CDLL(None).malloc_trim(0)


def _with_numbers(dataset: Any) -> Any:
    """A Hugging Face data set gives lists unless it is told to give tensors."""
    plain = getattr(dataset, "format", None)
    if hasattr(dataset, "with_format") and isinstance(plain, dict) and plain.get("type") is None:
        return dataset.with_format("torch")
    return dataset
