"""Profile sets: what is accepted, how they are normalised, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisette.encoders.profiles import HalfNormal, ProfileSet, build
from noisette.encoders.profiles.base import rank_counts
from noisette.errors import InvalidInput
from tests.support.helpers import exact_square, refused


@given(
    st.lists(st.tuples(st.floats(0, 1e300), st.integers(1, 10**9)), min_size=1, max_size=20),
    st.floats(1e-6, 1.0),
)
def test_normalised_is_at_most_the_share_exactly(pairs: list[tuple[float, int]], share: float) -> None:
    """In exact arithmetic, for any magnitudes; and close to the share, so that nothing is given away."""
    magnitudes = sorted(level for level, _ in pairs)
    if magnitudes[-1] < 1e-290:
        magnitudes[-1] = 1.0
    built = ProfileSet.normalized([magnitudes], [count for _, count in pairs], share)
    assert exact_square(built, 0) <= Fraction(share)
    assert float(exact_square(built, 0)) >= share * (1 - 1e-12)
    assert built.norms[0] <= math.sqrt(share)
    assert exact_square(built, 0) <= Fraction(float(built.norms[0])) ** 2


@pytest.mark.parametrize(
    ("levels", "counts"),
    [
        ([[0.2, 0.1]], [1, 1]),  # not ascending
        ([[-0.1, 0.1]], [1, 1]),
        ([[math.nan, 0.1]], [1, 1]),
        ([[0.1, math.inf]], [1, 1]),
        ([[0.1, 0.2]], [1, 0]),
        ([[0.1, 0.2]], [1, -1]),
        ([[0.1, 0.2]], [1.5, 1.0]),
        ([[0.1, 0.2]], [1]),
        ([[0.1, 0.2]], [[1, 1]]),
        (np.zeros((1, 0)), np.zeros(0, dtype=np.int64)),
    ],
)
def test_bad_sets(levels: object, counts: object) -> None:
    with refused(InvalidInput):
        ProfileSet(np.asarray(levels), np.asarray(counts))


def test_too_long() -> None:
    with refused(InvalidInput, "norm"):
        ProfileSet(np.array([[0.5, 0.9]]), np.array([1, 1])).within(1.0)
    with refused(InvalidInput, "no positive"):
        ProfileSet.normalized([[0.0, 0.0]], [1, 1])
    with refused(InvalidInput, "no positive"), np.errstate(invalid="ignore"):
        ProfileSet.normalized([[0.0, math.inf]], [1, 1])


def test_the_norm_is_never_below_the_truth() -> None:
    """Also where squares leave the range of a float."""
    for size in (1e-300, 1e-170, 1.0, 1e160, 1e300):
        block = ProfileSet(size * np.array([[0.1, 0.2, 0.7]]), np.array([3, 2, 1]))
        assert Fraction(float(block.norms[0])) ** 2 >= exact_square(block, 0)
        assert block.norms[0] == pytest.approx(size * math.sqrt(0.03 + 0.08 + 0.49), rel=1e-12)


def test_envelope_and_iteration() -> None:
    block = ProfileSet(np.array([[0.1, 0.9], [0.3, 0.5]]), np.array([2, 1]))
    assert block.envelope().levels.tolist() == [[0.3, 0.9]]
    assert [one.levels.tolist() for one in block] == [[[0.1, 0.9]], [[0.3, 0.5]]]
    assert len(block) == 2
    assert block.dim == 3


@given(st.integers(1, 10**7), st.integers(1, 64))
def test_rank_counts_cover_every_rank(dim: int, levels: int) -> None:
    counts = rank_counts(dim, levels)
    assert counts.sum() == dim
    assert counts.min() >= 1
    assert len(counts) <= max(levels, 2)


def test_build_remembers() -> None:
    assert build(HalfNormal(), 50) is build(HalfNormal(), 50)
