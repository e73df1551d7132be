"""P6: sampling is Poisson with the declared rate, and the test that says so sees every sampler that is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from noisette.random import Generator
from noisette.training import PoissonSampler
from tests.support.helpers import refused
from tests.support.poisson_test import LEVEL, sampling_faults

EXAMPLES, RATE = 50, 0.1
BATCH = round(EXAMPLES * RATE)


def _draws(steps: int, rate: float = RATE, seed: int = 0) -> list[np.ndarray]:
    sampler = PoissonSampler(EXAMPLES, rate, Generator(seed, purpose="sampling"))
    return [sampler.draw() for _ in range(steps)]


@pytest.mark.parametrize("rate", [RATE, 0.02, 0.5])
def test_sampling_is_poisson(rate: float) -> None:
    assert sampling_faults(_draws(2000, rate), EXAMPLES, rate) == []


@pytest.mark.slow
@pytest.mark.parametrize("rate", [RATE, 0.02, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_sampling_is_poisson_over_20000_steps(rate: float, seed: int) -> None:
    assert sampling_faults(_draws(20_000, rate, seed), EXAMPLES, rate) == []


def _shuffling(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    out: list[np.ndarray] = []
    while len(out) < steps:
        out += np.array_split(rng.permutation(EXAMPLES), EXAMPLES // BATCH)
    return out[:steps]


def _shuffling_with_random_sizes(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    sizes = rng.binomial(EXAMPLES, RATE, steps)
    order = np.concatenate([rng.permutation(EXAMPLES) for _ in range(1 + sizes.sum() // EXAMPLES)])
    return [np.unique(part) for part in np.split(order, np.cumsum(sizes))[:steps]]


def _fixed_size(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [rng.choice(EXAMPLES, BATCH, replace=False) for _ in range(steps)]


def _with_replacement(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [rng.integers(EXAMPLES, size=rng.poisson(BATCH)) for _ in range(steps)]


def _with_replacement_once_each(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [np.unique(rng.integers(EXAMPLES, size=rng.binomial(EXAMPLES, RATE))) for _ in range(steps)]


def _in_pairs(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    halves = [np.flatnonzero(rng.random(EXAMPLES // 2) < RATE) for _ in range(steps)]
    return [np.concatenate([2 * half, 2 * half + 1]) for half in halves]


def _never_the_first(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [np.flatnonzero((rng.random(EXAMPLES) < RATE) & (np.arange(EXAMPLES) > 0)) for _ in range(steps)]


def _same_twice(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    once = [np.flatnonzero(rng.random(EXAMPLES) < RATE) for _ in range(steps // 2)]
    return [index for index in once for _ in range(2)]


def _half_the_rate(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [np.flatnonzero(rng.random(EXAMPLES) < RATE / 2) for _ in range(steps)]


def _without_empty_batches(rng: np.random.Generator, steps: int) -> list[np.ndarray]:
    return [index for index in (np.flatnonzero(rng.random(EXAMPLES) < RATE) for _ in range(2 * steps)) if len(index)][
        :steps
    ]


@pytest.mark.parametrize(
    "fault",
    [
        _shuffling,
        _shuffling_with_random_sizes,
        _fixed_size,
        _with_replacement,
        _with_replacement_once_each,
        _in_pairs,
        _never_the_first,
        _same_twice,
        _half_the_rate,
    ],
)
def test_other_samplers_are_seen(fault: Callable[[np.random.Generator, int], list[np.ndarray]]) -> None:
    assert sampling_faults(fault(np.random.default_rng(3), 3000), EXAMPLES, RATE)


@pytest.mark.slow
def test_leaving_out_empty_batches_is_seen() -> None:
    draws = _without_empty_batches(np.random.default_rng(3), 20_000)
    assert sampling_faults(draws, EXAMPLES, RATE) == ["sizes are not binomial"]


def test_rate_one_takes_everything_and_a_tiny_rate_nothing() -> None:
    everything = PoissonSampler(7, 1.0, Generator(0))
    assert all(everything.draw().tolist() == list(range(7)) for _ in range(100))
    nothing = PoissonSampler(7, 1e-12, Generator(0))
    assert all(nothing.draw().tolist() == [] for _ in range(100))


def test_indices_are_integers_in_ascending_order() -> None:
    for index in _draws(50):
        assert index.dtype == np.int64
        assert np.all(np.diff(index) > 0)


def test_groups_are_drawn_uniformly_and_independently() -> None:
    """Chi-square of group against example, and of one example's group against its neighbour's, at level 1e-6."""
    sampler = PoissonSampler(EXAMPLES, RATE, Generator(5, purpose="sampling"))
    drawn = np.array([sampler.groups(6, 4) for _ in range(4000)])
    table = np.array([np.bincount(drawn[:, member], minlength=4) for member in range(6)])
    assert stats.chisquare(table, 1000, axis=1).pvalue.min() * 6 > LEVEL
    for a, b in ((0, 1), (0, 5), (2, 3)):
        joint = np.bincount(4 * drawn[:, a] + drawn[:, b], minlength=16)
        assert stats.chisquare(joint).pvalue > LEVEL


def test_the_group_of_an_example_does_not_depend_on_how_many_others_there_are() -> None:
    few = PoissonSampler(EXAMPLES, RATE, Generator(5)).groups(3, 4)
    many = PoissonSampler(EXAMPLES, RATE, Generator(5)).groups(30, 4)
    assert few.tolist() == many[:3].tolist()


def test_no_examples_are_refused() -> None:
    with refused():
        PoissonSampler(0, 0.5, Generator(0))
