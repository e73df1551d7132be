"""Images and micro-batches: how far one example can move the sum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.base import Image
from noisette.encoders.profiles import Blocks, Empirical, HalfNormal, PaperGaussian, ProfileSet, Tails
from tests.support.helpers import by_rank, ordinary_rows


def brute_force(psi: np.ndarray) -> np.ndarray:
    """At rank t the least psi_s + psi_r over s + r = t + d, as soundness demands; ranks from 1."""
    d = len(psi)
    return np.array([min(psi[s - 1] + psi[t + d - s - 1] for s in range(t, d + 1)) for t in range(1, d + 1)])


def widened(psi: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    block = ProfileSet(psi[None], np.ones(len(psi), dtype=np.int64) if counts is None else counts)
    (wide,) = Image(1.0, (block,)).for_microbatches().profiles
    return by_rank(wide)[0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_widened_is_the_brute_force_minimum(levels: list[float]) -> None:
    psi = np.sort(np.array(levels))
    np.testing.assert_array_equal(widened(psi), brute_force(psi))


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=6))
def test_widened_with_counts(pairs: list[tuple[float, int]]) -> None:
    levels, counts = np.sort([level for level, _ in pairs]), np.array([count for _, count in pairs])
    np.testing.assert_array_equal(widened(levels, counts), brute_force(np.repeat(levels, counts)))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_no_difference_exceeds_it(levels: list[float], random: object) -> None:
    """Over orders and signs of two vectors within psi: the sorted difference is within the widened profile."""
    psi = np.sort(np.array(levels))
    wide = widened(psi)
    d = len(psi)
    for order in itertools.permutations(range(d)):
        sign = np.array([random.choice([-1, 1]) for _ in range(d)])
        assert np.all(np.sort(np.abs(psi - sign * psi[list(order)])) <= wide)


def test_twice_psi_is_not_enough() -> None:
    """psi = (0, 1): the two encodings can sit on different coordinates, and then the difference is (1, 1)."""
    encoder = Ranked(dim=2, profiles=Empirical(levels=(0.0, 1.0), counts=(1, 1)), micro_batch=2)
    rows = torch.tensor([[-100.0, 9.0], [100.0, -1.0]])  # together (0, 8), the second alone (100, -1)
    groups = torch.tensor([5, 5])
    both = encoder.encode_sum(rows, groups).unsafe_values()
    alone = encoder.encode_sum(rows[1:], groups[1:]).unsafe_values()
    assert both.tolist() == [0.0, 1.0]
    assert alone.tolist() == [1.0, 0.0]
    move = np.sort(np.abs((both - alone).numpy()))
    psi = np.array([0.0, 1.0])
    assert move.tolist() == [1.0, 1.0]
    assert not np.all(move <= 2 * psi), "twice psi would have been too small"
    assert np.all(move <= by_rank(encoder.image.profiles[0])[0])


def test_widened_over_a_set_uses_the_envelope() -> None:
    """The two encodings may have chosen different profiles."""
    block = ProfileSet(np.array([[0.1, 0.1, 0.8], [0.3, 0.3, 0.3]]), np.ones(3, dtype=np.int64))
    (wide,) = Image(1.0, (block,)).for_microbatches().profiles
    np.testing.assert_array_equal(by_rank(wide)[0], brute_force(np.array([0.3, 0.3, 0.8])))


def test_many_levels_are_rounded_up() -> None:
    """Beyond 128 levels the widened profile is coarser, never lower, and not by much."""
    (block,) = PaperGaussian(n=1).build(700)
    (wide,) = Image(1.0, (block,)).for_microbatches().profiles
    exact, coarse = brute_force(by_rank(block)[0]), by_rank(wide)[0]
    assert np.all(coarse >= exact)
    assert np.linalg.norm(coarse) < 1.1 * np.linalg.norm(exact)


@pytest.mark.parametrize("encoder", [L2(dim=40), Ranked(dim=40, profiles=Tails()), Snap(dim=40)], ids=repr)
def test_groups_are_means_over_the_public_size(encoder: object) -> None:
    """A group's gradients are summed and divided by micro_batch, however many came; other groups do not matter."""
    pairs = encoder.replace(micro_batch=3)
    rows = ordinary_rows(7, 40, seed=1)
    groups = torch.tensor([4, 9, 4, 4, 9, 2, 4])
    means = torch.stack([rows[groups == g].sum(dim=0) / 3 for g in (2, 4, 9)])
    expected = encoder.encode(means).sum(dim=0)
    torch.testing.assert_close(pairs.encode_sum(rows, groups).unsafe_values(), expected, rtol=0, atol=1e-13)
    order = torch.tensor([3, 6, 1, 0, 5, 2, 4])
    torch.testing.assert_close(
        pairs.encode_sum(rows[order], groups[order]).unsafe_values(), expected, rtol=0, atol=1e-13
    )


def test_one_broken_example_spares_its_group() -> None:
    """A NaN counts as the zero vector for that example, before its group is formed."""
    encoder = Ranked(dim=10, micro_batch=2)
    rows = ordinary_rows(4, 10, seed=2)
    rows[0, 3] = torch.nan
    groups = torch.tensor([0, 0, 1, 1])
    without = encoder.encode_sum(rows[1:], groups[1:]).unsafe_values()
    assert torch.equal(encoder.encode_sum(rows, groups).unsafe_values(), without)
    overflow = torch.full((2, 10), 1.7e308, dtype=torch.float64)
    assert torch.all(encoder.encode_sum(overflow, groups[:2]).unsafe_values() == 0)
    empty = encoder.encode_sum(torch.empty(0, 10), torch.empty(0, dtype=torch.int64)).unsafe_values()
    assert torch.equal(empty, torch.zeros(10, dtype=torch.float64))


def test_norm_of_the_image() -> None:
    """At most the radius; several blocks add up in squares; micro-batches double it."""
    for profiles in (HalfNormal(), Tails(), Blocks(dims=(10, 30)), Blocks(dims=(10, 30), shares=(0.5, 0.5))):
        image = Ranked(dim=40, profiles=profiles, radius=0.5).image
        assert 0.49 < image.norm <= 0.5
        assert Ranked(dim=40, profiles=profiles, radius=0.5, micro_batch=2).image.norm == 2 * image.norm
