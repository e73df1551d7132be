"""Which examples of a batch a process takes, so that all together take each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from noisette._pytree import tensors
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanisms
from noisette.random import Generator
from noisette.training._batching import PoissonSampler
from noisette.training._datasets import BatchDraw, Examples, Index, InMemoryExamples
from noisette.training._distributed import Processes, digest_of
from noisette.training._units import Units

__all__ = ["RankSlice", "batch_draws"]


@dataclass(frozen=True)
class RankSlice:
    """Part of a batch that is drawn alike on every process, from all `examples` of the run or all of its `units`.

    Where every process holds all examples, a batch is cut into parts of equal size, and no unit is. Where each holds
    its own, those from `start` up to `stop` of the whole, it takes what was drawn of them.

    >>> RankSlice(examples=10, processes=Processes(rank=1, size=2)).local(np.array([2, 3, 5, 8]))
    array([5, 8])
    """

    examples: int
    processes: Processes
    start: int = 0
    stop: int | None = None
    units: Units | None = None

    @classmethod
    def agreed(
        cls, processes: Processes, examples: Examples, *, sharded: bool, units: Units | None = None
    ) -> RankSlice:
        """The share of this process, after a look at what the others hold: nobody's example may count twice."""
        mine = len(examples)
        held = processes.all_gather([mine, _digest(examples) if processes.size > 1 else 0])
        if units is not None:
            processes.assert_same("give every process the same ids", units=units.numbers.tolist())
        if not sharded:
            other = next((number for number, found in enumerate(held) if found != held[0]), None)
            if other is not None:
                raise InvalidInput(
                    f"process {other} has other examples than process 0, or has them in another order.",
                    hint="load the same data in the same order everywhere, or say sharded=True if each has its own",
                )
            return cls(mine, processes, units=units)
        seen: dict[int, int] = {}
        for number, (count, digest) in enumerate(held):
            if count and digest and seen.setdefault(digest, number) != number:
                raise InvalidInput(
                    f"processes {seen[digest]} and {number} have the same examples, which would count twice.",
                    hint="leave sharded=True out if every process has all examples",
                )
        ends = np.cumsum([count for count, _ in held]).tolist()
        return cls(ends[-1], processes, ends[processes.rank] - mine, ends[processes.rank])

    @property
    def num_sampled(self) -> int:
        """How many there are of what is drawn: examples, or units."""
        return self.examples if self.units is None else len(self.units)

    def examples_of(self, most: int | None) -> int | None:
        """How many examples there are at most where at most so many are drawn; None where nothing bounds them."""
        return most if most is None or self.units is None else most * self.units.per_unit

    def local(self, index: Index) -> Index:
        """This process's part of a batch of global indices, as indices into the examples that it holds."""
        if self.stop is None:
            return np.array_split(index, self.processes.size)[self.processes.rank]
        return index[(index >= self.start) & (index < self.stop)] - self.start

    def of_groups(self, index: Index, groups: Index) -> tuple[Index, Index]:
        """This process's part where examples go in `groups`, which are not cut; every process holds all examples."""
        mine = groups % self.processes.size == self.processes.rank
        return index[mine], groups[mine]


def batch_draws(
    mechanisms: Mechanisms, left: Sequence[int], share: RankSlice, sampling: Generator
) -> Iterator[BatchDraw]:
    """A process's share of a batch for each of the steps that are `left` of every mechanism, drawn when asked for."""
    for which, (mechanism, steps) in enumerate(zip(mechanisms, left, strict=True)):
        sampler = PoissonSampler(share.num_sampled, mechanism.rate, sampling, mechanism.sampling.max_batch)
        members = mechanism.encoder.micro_batch
        many = max(1, round(mechanism.rate * share.num_sampled / members))
        for _ in range(steps):
            drawn = sampler.draw()
            if share.units is not None:
                yield BatchDraw(which, *share.of_groups(*share.units.sample_members(drawn, sampling)))
            elif members == 1:
                yield BatchDraw(which, share.local(drawn))
            else:
                groups = sampler.groups(len(drawn), many)
                order = np.argsort(groups, kind="stable")
                yield BatchDraw(which, *share.of_groups(drawn[order], groups[order]))


def _digest(examples: Examples) -> int:
    """A number for examples in their order, from some at equal distances; 0 where they never look the same twice."""
    count = len(examples)
    most = _COMPARED if isinstance(examples, InMemoryExamples) else _COMPARED_IF_READ
    index = np.linspace(0, max(0, count - 1), min(count, most)).astype(np.int64)

    def look() -> int:
        return digest_of(part for batch in examples.get(index) for part in tensors(batch))

    found = look()
    return found if isinstance(examples, InMemoryExamples) or found == look() else 0


_COMPARED, _COMPARED_IF_READ = 1024, 16
