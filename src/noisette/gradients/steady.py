"""Whether the gradient of an example is the same, to the last bit, in whatever company it is computed.

Matrix products round by their shapes. In chunks that are not too small the shapes of most models make no difference;
which they are is not documented anywhere, so it is tried out, on made-up examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from noisette.batch import Batch, rows, size
from noisette.gradients.layers import Layers
from noisette.gradients.layout import Layout
from noisette.gradients.sums import at_a_time
from noisette.gradients.terms import Term
from noisette.gradients.ways import Loop, Way

__all__ = ["steady"]

_FEWEST = 4, 16  # examples for every thread: the fewer are tried first, beside more counts

Part = Callable[[slice], Tensor]
"""Some coordinates of the gradients of the examples that are asked for, (b, n)."""


def steady(way: Way, made: Batch, layout: Layout, most: int) -> int | None:
    """How many examples `way` must be given at least, so that no gradient depends on the others; None if nothing helps.

    `made` are examples that were made up, `most` is the largest count that it is given at a time. What a chunk lacks
    is filled up. Where a chunk of some size will not do, one of always the same size may.
    """
    if isinstance(way, Loop):
        return 1
    threads: int = torch.get_num_threads()
    fewer, few = (count * threads for count in _FEWEST)
    tries: tuple[tuple[int, ...], ...] = (
        (*range(fewer, 2 * fewer, threads), 3 * fewer - 1),
        (few, 3 * few - 1),
        (most, most),
    )
    for counts in tries:
        tried = [min(most, count) for count in counts]
        if _agree(way, made, layout, tried):
            return tried[0]
    return None


def _agree(way: Way, made: Batch, layout: Layout, counts: Sequence[int]) -> bool:
    """Whether examples have the same gradients among so many, and in whatever place."""
    try:
        few, examples = _parts(way, made, layout, counts[0]), min(size(made), counts[0])
        others = ((count, _parts(way, made, layout, count)) for count in counts[1:])
        return all(_same(few, many, examples, count, layout) for count, many in others)
    except Exception:  # noqa: BLE001 - this way does not fit the model, and another one will be taken
        return False


def _same(few: Sequence[Part], many: Sequence[Part], examples: int, count: int, layout: Layout) -> bool:
    """Whether the first examples have the same gradients among `count` others: in their own place and in the last."""
    together = min(at_a_time(layout.dim), count)
    for one in range(examples):
        last = count - 1 - (count - 1 - one) % examples
        for part, other in zip(few, many, strict=True):
            alone = part(slice(one, one + 1))
            beside = other(slice(max(0, one + 1 - together), one + 1))[-1:]
            if not (torch.equal(alone, beside) and torch.equal(alone, other(slice(last, last + 1)))):
                return False
    return True


def _parts(way: Way, made: Batch, layout: Layout, count: int) -> list[Part]:
    """The gradients of so many examples, `made` again and again: layer by layer where they are computed so."""
    batch = rows(made, torch.arange(count) % size(made))
    if isinstance(way, Layers):
        return [partial(_rows_of, term, layout, number) for number, term in enumerate(way.terms(batch))]
    found = layout.rows(count)
    way.rows(batch, found)
    kept = found.clone()  # the memory of rows is used again and again
    return [lambda some: kept[some]]


def _rows_of(term: Term, layout: Layout, number: int, some: slice) -> Tensor:
    """Rows (b, n) of a term, computed where a step would compute them."""
    return term.rows(some, layout.columns(layout.rows(some.stop - some.start))[number]).clone()
