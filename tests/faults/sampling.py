"""Faults of the sampler: batches that are not Poisson, though the accountant takes them for it."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from noisette import Generator
from noisette.training import PoissonSampler
from tests.faults.table import Catcher, Plant, by, fault
from tests.promises import test_sensitivity, test_trained_is_accounted
from tests.promises.test_sensitivity import Case
from tests.unit.training import test_batching

Draw = Callable[[np.random.Generator, int, float], np.ndarray]
"""Indices of a batch out of so many examples at a rate."""


def _judges(*, heavy: bool = True) -> tuple[Catcher, ...]:
    """The test of the sampler, and that of a whole run, which `heavy` leaves to `make slow`."""
    run, says = test_trained_is_accounted.test_trained_is_accounted, "batches are not Poisson"
    return (
        by(test_batching.test_sampling_is_poisson, rate=0.1),
        by(run, name="L2 and Gaussian", says=says, heavy=heavy),
    )


def _instead(draw: Draw) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(3)
        patch.setattr(PoissonSampler, "draw", lambda self: np.sort(draw(rng, self._examples, self._rate)))

    return plant


@fault("shuffling", *_judges(heavy=False))
def shuffling(patch: pytest.MonkeyPatch) -> None:
    """Batches are cut from a shuffled list, epoch after epoch. A run makes a sampler for each step."""
    rng = np.random.default_rng(3)
    left: WeakKeyDictionary[Generator, list[np.ndarray]] = WeakKeyDictionary()

    def draw(self: PoissonSampler) -> np.ndarray:
        batches = left.setdefault(self._generator, [])
        if not batches:
            batches += np.array_split(rng.permutation(self._examples), round(1 / self._rate))
        return np.sort(batches.pop())

    patch.setattr(PoissonSampler, "draw", draw)


@fault("fixed-size sampling", *_judges())
@_instead
def fixed_size(rng: np.random.Generator, examples: int, rate: float) -> np.ndarray:
    return rng.choice(examples, max(1, round(examples * rate)), replace=False)


@fault("with-replacement sampling", *_judges())
@_instead
def with_replacement(rng: np.random.Generator, examples: int, rate: float) -> np.ndarray:
    return rng.integers(examples, size=rng.poisson(examples * rate))


@fault("empty batches drawn again", by(test_batching.test_sampling_is_poisson, rate=0.02))
def never_empty(patch: pytest.MonkeyPatch) -> None:
    draw = PoissonSampler.draw

    def again(self: PoissonSampler) -> np.ndarray:
        while len(index := draw(self)) == 0:
            pass
        return index

    patch.setattr(PoissonSampler, "draw", again)


@fault("twice the rate", *_judges())
def twice_the_rate(patch: pytest.MonkeyPatch) -> None:
    start = PoissonSampler.__init__
    patch.setattr(PoissonSampler, "__init__", lambda self, n, rate, *others: start(self, n, 2 * rate, *others))


@fault("examples that come in pairs", *_judges())
@_instead
def in_pairs(rng: np.random.Generator, examples: int, rate: float) -> np.ndarray:
    half = np.flatnonzero(rng.random(examples // 2) < rate)
    return np.concatenate([2 * half, 2 * half + 1])


@fault(
    "micro-batches cut from a list",
    by(test_batching.test_groups_are_drawn_uniformly_and_independently),
    by(test_sensitivity.check_micro_batches, case=Case(micro_batch=2, rate=1.0, one=1)),
)
def cut_from_a_list(patch: pytest.MonkeyPatch) -> None:
    """Taking one example out moves all those behind it to other groups."""
    patch.setattr(PoissonSampler, "groups", lambda self, members, groups: np.arange(members) // 2)
