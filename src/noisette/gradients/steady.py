"""Whether the gradient of an example is the same, to the last bit, in whatever company it is computed.

Matrix products round by their shapes. In chunks that are not too small the shapes of most models make no difference;
which they are is not documented anywhere, so it is tried out, on made-up examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noisette.batch import Batch, rows, size
from noisette.gradients.layers import Layers
from noisette.gradients.layout import Layout
from noisette.gradients.sums import at_a_time
from noisette.gradients.terms import Term
from noisette.gradients.ways import Loop, Way

__all__ = ["Sizes", "steady"]

_FEWEST = 16  # examples for every thread


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
    few = min(most, _FEWEST * torch.get_num_threads())
    tried = {Sizes(few): 3 * few - 1, Sizes(few, few): 3 * few, Sizes(most, most): most}
    for sizes, other in tried.items():
        if _agree(way, made, layout, (sizes.least, sizes.most(min(most, other)))):
            return sizes
    return None


def _agree(way: Way, made: Batch, layout: Layout, counts: tuple[int, int]) -> bool:
    """Whether examples have the same gradients among so many, and in whatever place."""
    try:
        few, many = (_gradients(way, rows(made, torch.arange(count) % size(made)), layout) for count in counts)
    except Exception:  # noqa: BLE001 - this way does not fit the model, and another one will be taken
        return False
    together = min(at_a_time(layout.dim), counts[1])
    for one in range(min(size(made), counts[0])):
        alone, last = few(slice(one, one + 1)), counts[1] - 1 - (counts[1] - 1 - one) % size(made)
        beside = many(slice(max(0, one + 1 - together), one + 1))
        if not (torch.equal(alone[0], beside[-1]) and torch.equal(alone, many(slice(last, last + 1)))):
            return False
    return True


def _gradients(way: Way, batch: Batch, layout: Layout) -> Callable[[slice], Tensor]:
    """Gradients of the examples of a batch, (b, dim) for each slice that is asked for."""
    if isinstance(way, Layers):
        return _by_terms(way.terms(batch), layout)
    found = layout.rows(size(batch))
    way.rows(batch, found)
    kept = found.clone()  # the memory of rows is used again and again
    return lambda some: kept[some]


def _by_terms(terms: Sequence[Term], layout: Layout) -> Callable[[slice], Tensor]:
    def rows_of(some: slice) -> Tensor:
        found = layout.rows(some.stop - some.start)
        for term, part in zip(terms, layout.columns(found), strict=True):
            if (made := term.rows(some, part)) is not part:
                part.copy_(made)
        return found.clone()

    return rows_of
