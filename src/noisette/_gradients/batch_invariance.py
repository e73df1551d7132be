"""Whether an example has the same gradient, to the last bit, at every place of every batch that a way is given.

Which code a library runs for a number follows from the shape of what it is given and from where the number stands in
it: products go by blocks of rows, functions of single numbers by vectors, with other code for what is left at an end.
So only a few sizes of batches are used: those that leave no such end (`noisette._gradients.vector_ends`), and of them
none before an example had the same gradient at each of its places. The examples and the weights for that are synthetic,
and the same in every process and at every step, so that neither a private example nor the state of the training has a
say in what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from noisette._gradients.draws import AlikeDraws
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import LargeOuterProducts
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import LossAdapter
from noisette._gradients.probe import dropout_disabled
from noisette._gradients.strategies import Strategy
from noisette._gradients.vector_ends import Ends
from noisette._gradients.waiting import doing
from noisette._pytree import Batch, change, rows, size

__all__ = ["ChunkSizes", "Places", "Weights", "find_invariant_chunk_sizes"]

# the smallest batch for each thread, and the step to larger ones, those first that leave the fewest places empty
_CANDIDATES = (4, 1), (16, 1), (4, 4), (16, 4), (16, 16), (32, 32)
_TRIED = 6  # of the smallest sizes, at every other of the next ones: odd multiples of a step leave the most over
_AMONG = 1  # times the largest size: examples in all sizes that are tried between it and the smallest
_NOTED = 7  # examples among which it is noted how wide results are: few widths are multiples of it by chance
_COMPARED = 1 << 24  # coordinates after which no more rows are compared
_KEPT = 1 << 23  # numbers of examples at their first place beyond which these are computed again
_LARGE = 1 << 22  # parameters of models of which fewer sizes are tried, and for which no weights are kept
_SCALES = 1.0, -1.0, 4.0, 0.125  # of synthetic inputs: functions are computed otherwise for large and small numbers


_T = TypeVar("_T")


@dataclass(frozen=True)
class ChunkSizes:
    """How many examples are computed at a time: `least`, or that and some multiple of `step`.

    >>> ChunkSizes(16, 16).of(20), ChunkSizes(4, 1).of(3), ChunkSizes(4, 4).of(5)
    (32, 4, 8)
    """

    least: int = 1
    step: int = 1

    def of(self, count: int) -> int:
        """The smallest size for `count` examples."""
        return self.least + -(-max(0, count - self.least) // self.step) * self.step

    def most(self, most: int) -> int:
        """The largest size up to `most`, or `least` if that is larger."""
        return self.least + max(0, most - self.least) // self.step * self.step


class Weights:
    """Weights like those of a model at one time, drawn from a public seed: as large, and none of them zero.

    The weights of a model that was just made, or of a new adapter, may all be zero, and then nothing is rounded.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._drawn: list[Tensor] | None = None
        self._like = [(float(p.detach().double().mean()), _spread(p.detach())) for p in layout.parameters]

    def draw(self) -> list[Tensor]:
        """One tensor for each parameter, always the same ones."""
        if self._drawn is None:
            public, self._drawn = torch.Generator().manual_seed(0), []
            for p, (mean, spread) in zip(self._layout.parameters, self._like, strict=True):
                drawn = torch.randn(p.shape, generator=public).mul_(spread).add_(mean)
                self._drawn.append(drawn.to(p.device, p.dtype))
        return self._drawn

    def spare(self) -> None:
        """Give their memory back, if it is much; the same ones are drawn again when they are needed."""
        if self._layout.dim > _LARGE:
            self._drawn = None


def _spread(p: Tensor) -> float:
    values = p.double()
    spread, largest = float(values.std(correction=0)), float(values.abs().max()) if len(values.flatten()) else 0.0
    return max(spread, 0.02 * largest) or (p.shape[-1] if p.ndim else 1) ** -0.5


class Places:
    """Comparisons of one synthetic example with itself at all places of a batch, for one `way` and shape of examples.

    `made` are synthetic examples of that shape.
    """

    def __init__(self, way: Strategy, aim: LossAdapter, made: Batch, layout: Layout, weights: Weights) -> None:
        self._way, self._aim, self._made, self._layout, self._weights = way, aim, made, layout, weights
        self._tried: dict[tuple[int, int], bool] = {}
        self._ends: Ends | None = None
        self._firsts: dict[tuple[int, int], _First] = {}
        self._alike: dict[tuple[int, int], bool] = {}
        self._finite: dict[tuple[int, int], bool] = {}

    @property
    def tried(self) -> int:
        """Of how many sizes beside the smallest and the largest it is to be seen what they do."""
        return _TRIED if self._layout.dim <= _LARGE else 1

    def agree(self, count: int, least: int) -> bool:
        """Whether an example has the gradient at every place of `count` that it has at the first of `least`."""
        if (count, least) not in self._tried:
            doing(f"batches of {count}")
            self._tried[count, least] = self.fit(count) and self._apart(partial(self._compared, count, least))
        return self._tried[count, least]

    def fit(self, count: int) -> bool:
        """Whether nothing that is computed of `count` examples ends in the midst of a vector."""
        if self._ends is None:
            self._ends = self._apart(partial(Ends.of, partial(self._run, self._copies(0, _NOTED)), _NOTED))
        return self._ends.fits(count, torch.get_num_threads())

    def _apart(self, run: Callable[[], _T]) -> _T:
        """What `run` returns, with synthetic weights, without dropout and with random numbers that are alike."""
        device = self._layout.parameters[0].device
        weights = self._weights.draw()
        with torch.enable_grad(), dropout_disabled(self._aim, device), self._layout.at(weights), AlikeDraws():
            return run()

    def _compared(self, count: int, least: int) -> bool:
        # all examples for the smallest size; for each other one of them, and for the next size another one
        turn = range(count, count + len(_SCALES)) if count != least else range(len(_SCALES))
        usable = (number % len(_SCALES) for number in turn if self._is_finite(number % len(_SCALES), least))
        chosen = list(usable if count == least else islice(usable, 1))
        return bool(chosen) and all(self._everywhere(number, count, least) for number in chosen)

    def _is_finite(self, number: int, least: int) -> bool:
        """Whether an example can be compared: a model may take no negative numbers."""
        if (number, least) not in self._finite:
            self._finite[number, least] = bool(self._first(number, least).gradient.isfinite().all())
        return self._finite[number, least]

    def _everywhere(self, number: int, count: int, least: int) -> bool:
        """Whether example `number` has at each place of `count` what it has at the first of `least`.

        Of the smallest size itself this was seen when it was computed: on a processor that computes the same again in
        the same way, once more would show the same. Each other size is computed at another time, and in other memory.
        """
        if count == least:
            return self._alike[number, least]
        first = self._first(number, least)
        numbers, gradients = self._computed(self._copies(number, count))
        same = len(first.numbers) == len(numbers) and all(map(_same, first.numbers, numbers))
        del numbers  # they are as large as all activations, but for what rows are computed from
        return same and all(_same(first.gradient, some) for some in gradients)

    def _first(self, number: int, least: int) -> _First:
        """Example `number` at the first place of the smallest size."""
        if (number, least) not in self._firsts:
            found, self._alike[number, least] = self._at_first(number, least)
            if sum(part.size for part in (found, *self._firsts.values())) > _KEPT:
                self._firsts.clear()
            self._firsts[number, least] = found
        return self._firsts[number, least]

    def _at_first(self, number: int, least: int) -> tuple[_First, bool]:
        """The same, and whether all other places of that size have it too."""
        numbers, gradients = self._computed(self._copies(number, least))
        some = next(gradients)
        first = _First([part[:1].clone() for part in numbers], some[:1].clone())
        alike = _same(first.gradient, some) and all(map(_same, first.numbers, numbers))
        return first, alike and all(_same(first.gradient, others) for others in gradients)

    def _copies(self, number: int, count: int) -> Batch:
        """A batch of `count` copies of one example."""
        one = rows(self._made, [number % size(self._made)] * count)
        return change(one, lambda part: part * _SCALES[number] if part.is_floating_point() else part)

    def _run(self, batch: Batch) -> None:
        for _ in self._computed(batch)[1]:
            pass

    def _computed(self, batch: Batch) -> tuple[list[Tensor], Iterator[Tensor]]:
        """All that a batch's gradients are computed from, (B, ...) each, and the gradients (b, dim), in parts.

        A part is in the memory of the one before.
        """
        count = size(batch)
        if not isinstance(self._way, Layers):
            found = self._layout.rows(count)
            self._way.rows(batch, found)
            return [], iter([found])
        terms = self._way.terms(batch)
        norms = [term.square_norms() for term in terms if isinstance(term, LargeOuterProducts)]
        blocks = (rows for _, rows in self._way.blocks(terms, count))
        return [*(part for term in terms for part in term.parts()), *norms], self._some(blocks)

    def _some(self, blocks: Iterator[Tensor]) -> Iterator[Tensor]:
        """Of rows that are long only the first: what they are computed from is compared in all places."""
        compared = 0
        for some in blocks:
            yield some
            compared += some.numel()
            if compared > _COMPARED:
                return


@dataclass(frozen=True)
class _First:
    """All that one example's gradient is computed from, (1, ...) each, and the gradient (1, dim), at one place."""

    numbers: list[Tensor]
    gradient: Tensor

    @property
    def size(self) -> int:
        """How many numbers that are."""
        return self.gradient.numel() + sum(part.numel() for part in self.numbers)


def _same(one: Tensor, others: Tensor) -> bool:
    """Whether all rows are this one (1, ...)."""
    return torch.equal(one.expand_as(others), others)


def find_invariant_chunk_sizes(places: Places, most: int, held: int) -> ChunkSizes | None:
    """Sizes up to `most` at whose every place an example has the same gradient; None if there are none.

    A layer with one output is computed by fours, with other code for the rest. For it, and its like, multiples of a few
    examples will do, and for few others one size alone, which is `held`.
    """
    threads = torch.get_num_threads()
    for least, step in _CANDIDATES:
        sizes = ChunkSizes(least * threads, step * threads if step > 1 else 1)
        if sizes.least < held and _hold(places, sizes, most):
            return sizes
    return ChunkSizes(held, held) if places.agree(held, held) else None


def _hold(places: Places, sizes: ChunkSizes, most: int) -> bool:
    """Whether the smallest of these sizes hold, and the largest, where threads have other shares."""
    found = list(filter(places.fit, range(sizes.least, most + 1, sizes.step)))
    if not found or found[0] != sizes.least:
        return False
    others, left = list[int](), _AMONG * most
    for count in [*found[1:2], *found[3::2][: places.tried]]:
        left -= count
        if left >= 0:
            others.append(count)
    # the largest first, as the most telling; what is not tried here is tried before it is used
    return all(places.agree(count, sizes.least) for count in dict.fromkeys([found[-1], sizes.least, *reversed(others)]))
