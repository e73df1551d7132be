"""Whether the gradient of an example is the same, to the last bit, in whatever company it is computed.

Matrix products round by their shapes. In chunks that are not too small the shapes of most models make no difference;
which they are is not documented anywhere, so it is tried out, on made-up examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from noisette.batch import Batch, rows, size
from noisette.errors import NoisetteError
from noisette.gradients.layers import Layers
from noisette.gradients.layout import Layout
from noisette.gradients.sums import at_a_time
from noisette.gradients.terms import Term, Wide
from noisette.gradients.ways import Loop, Way

__all__ = ["Sizes", "steady"]

_FEWEST = 4, 16  # examples for every thread: the fewer are tried first, beside more counts

Part = Callable[[slice], Tensor]
"""Some coordinates of the gradients of the examples that are asked for, (b, n)."""


@dataclass(frozen=True)
class Sizes:
    """How many examples are computed at a time: multiples of `step`, `least` or more."""

    least: int = 1
    step: int = 1

    def most(self, most: int) -> int:
        """The largest size up to `most`."""
        return max(1, most - most % self.step)

    def of(self, count: int, most: int) -> int:
        """The size that `count` examples are filled up to, which are no more than `most`.

        >>> Sizes(16, 16).of(20, most=256), Sizes(16).of(20, most=256), Sizes(16).of(3, most=8)
        (32, 20, 8)
        """
        return min(max(self.least, -(-count // self.step) * self.step), most)


def steady(way: Way, made: Batch, layout: Layout, most: int) -> Sizes | None:
    """How many examples `way` must be given, so that no gradient depends on the others; None if nothing helps.

    `made` are examples that were made up, `most` is the largest count that it is given at a time. What a chunk lacks
    is filled up. A Linear layer with one output takes examples by fours, and the rest of them in another way; for it,
    and its like, multiples will do. Where they will not, one size for all may.
    """
    if isinstance(way, Loop):
        return Sizes()
    threads: int = torch.get_num_threads()
    fewer, few = (min(most, count * threads) for count in _FEWEST)
    tried: tuple[tuple[Sizes, tuple[int, ...]], ...] = (
        (Sizes(fewer), (*range(fewer + threads, 2 * fewer, threads), 3 * fewer - 1, 3 * few - 1)),
        (Sizes(few), (3 * few - 1,)),
        (Sizes(few, few), (3 * few,)),
        (Sizes(most, most), (most,)),
    )
    for sizes, others in tried:
        if _agree(way, made, layout, [sizes.least, *(sizes.most(min(most, other)) for other in others)]):
            return sizes
    return None


def _agree(way: Way, made: Batch, layout: Layout, counts: Sequence[int]) -> bool:
    """Whether examples have the same gradients among so many, and in whatever place."""
    try:
        few, firsts = _parts(way, made, layout, counts[0]), range(min(size(made), counts[0]))
        for count in counts[1:]:
            places = [(one, count - 1 - (count - 1 - one) % size(made)) for one in firsts]  # the first, and the last
            if not _same(few, _parts(way, made, layout, count), places, min(at_a_time(layout.dim), count)):
                return False
    except NoisetteError:
        raise
    except Exception:  # noqa: BLE001 - this way does not fit the model, and another one will be taken
        return False
    return True


def _same(few: Sequence[Part], many: Sequence[Part], places: Sequence[tuple[int, int]], together: int) -> bool:
    """Whether examples have the same gradients among others: in their own place, beside others, and in their last."""
    for one, last in places:
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
        terms = way.terms(batch)
        rows_of = [partial(_rows_of, term, layout, span) for term, span in zip(terms, layout.spans, strict=True)]
        # beside its rows, the norms that a term says they have
        return [*rows_of, *(term.square_norms().unsqueeze(1).__getitem__ for term in terms if isinstance(term, Wide))]
    found = layout.rows(count)
    way.rows(batch, found)
    kept = found.clone()  # the memory of rows is used again and again
    return [lambda some: kept[some]]


def _rows_of(term: Term, layout: Layout, span: slice, some: slice) -> Tensor:
    """Rows (b, n) of a term, computed where a step would compute them."""
    return term.rows(some, layout.rows(some.stop - some.start)[:, span]).clone()
