"""What must hold for every encoder and every profile family."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisette import Encoder, Mechanism, parse
from noisette.encoders.base import Image
from noisette.encoders.profiles import Profiles
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import adversarial_rows, exact_square, ordinary_rows, refused, rows_within

ORDINARY = 9_000  # for each encoder example; with the adversarial ones, 1e5 gradients over the registered encoders


def outside_image(encoded: torch.Tensor, image: Image) -> list[str]:
    """What is wrong with encoded rows (B, d), as members of `image`; exact in float64. Empty when all is well."""
    rows = encoded.numpy()
    faults = []
    if not np.all(np.isfinite(rows)):
        return ["not finite"]
    length = np.sqrt(np.sum(rows.astype(np.longdouble) ** 2, axis=1))
    if np.any(length > image.norm):
        faults.append(f"norm {length.max()} above {image.norm}")
    start = 0
    for number, block in enumerate(image.profiles):
        inside = rows_within(rows[:, start : start + block.dim], block)
        if not inside.all():
            faults.append(f"{np.count_nonzero(~inside)} rows above every profile of block {number}")
        start += block.dim
    if image.profiles and start != rows.shape[1]:
        faults.append("the blocks do not cover the coordinates")
    return faults


def check_image(encoder: Encoder) -> None:
    """P1: whatever comes in, what goes out is in the image, rank by rank, with exact inequality."""
    dim = encoder.known_dim
    for name, rows in adversarial_rows(dim, seed=dim):
        assert outside_image(encoder.encode(rows), encoder.image) == [], name
    assert outside_image(encoder.encode(ordinary_rows(ORDINARY, dim, seed=1)), encoder.image) == []


def check_total(encoder: Encoder) -> None:
    """A NaN or an infinity makes that example zero and leaves the others alone; an empty batch sums to zero."""
    dim = encoder.known_dim
    rows = ordinary_rows(9, dim, seed=2)
    clean = encoder.encode(rows)
    assert clean.dtype == torch.float64
    assert clean.shape == rows.shape
    assert clean.abs().sum() > 0
    for bad in (math.nan, math.inf, -math.inf):
        broken = rows.clone()
        broken[4, dim // 2] = bad
        out = encoder.encode(broken)
        assert torch.all(out[4] == 0)
        keep = [row for row in range(9) if row != 4]
        assert torch.equal(out[keep], clean[keep])
    assert torch.equal(encoder.encode(torch.zeros(2, dim)), torch.zeros(2, dim, dtype=torch.float64))
    for dtype in (torch.float16, torch.float32, torch.float64):
        empty = encoder.encode_sum(torch.empty(0, dim, dtype=dtype)).unsafe_values()
        assert torch.equal(empty, torch.zeros(dim, dtype=torch.float64))


def check_neighbours(encoder: Encoder) -> None:
    """P2: one example changes the sum by exactly its encoding, and order does not matter."""
    rows = ordinary_rows(33, encoder.known_dim, seed=3)
    total = encoder.encode_sum(rows).unsafe_values()
    for one in (0, 7, 32):
        others = torch.cat([rows[:one], rows[one + 1 :]])
        moved = total - encoder.encode_sum(others).unsafe_values()
        torch.testing.assert_close(moved, encoder.encode(rows[one : one + 1])[0], rtol=0, atol=1e-13 * encoder.radius)
    shuffled = rows[torch.randperm(33, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(encoder.encode_sum(shuffled).unsafe_values(), total, rtol=0, atol=1e-13 * encoder.radius)
    chunks = encoder.encode_sum(rows[:20]) + encoder.encode_sum(rows[20:])
    torch.testing.assert_close(chunks.unsafe_values(), total, rtol=0, atol=1e-13 * encoder.radius)


def check_micro_batches(encoder: Encoder) -> None:
    """P2 for m = 2: one example moves the sum by something in the widened image, rank by rank and in norm."""
    pairs = encoder.replace(micro_batch=2)  # type: ignore[call-arg]
    assert pairs.image.norm >= 2 * encoder.image.norm
    dim, trials = encoder.known_dim, 60
    rng = np.random.default_rng(4)
    moves = []
    for trial in range(trials):
        rows = ordinary_rows(12, dim, seed=trial)
        if trial % 2:  # two opposite encodings of one group, which is the worst case
            rows[0] = -3 * rows[1][torch.from_numpy(rng.permutation(dim))]
        groups = torch.from_numpy(rng.integers(0, 5, 12))
        groups[1] = groups[0]
        with_it = pairs.encode_sum(rows, groups).unsafe_values()
        without = pairs.encode_sum(rows[1:], groups[1:]).unsafe_values()
        moves.append(with_it - without)
    # sums of a few encodings round by less than this; the image itself is exact
    slack = 1 + 1e-12
    table = torch.stack(moves) / slack
    table[table.abs() < 1e-12 * encoder.radius] = 0.0
    assert outside_image(table, pairs.image) == []


def check_bad_input(encoder: Encoder) -> None:
    """Wrong shapes, wrong types and wrong groups are refused with a hint."""
    dim = encoder.known_dim
    pairs = encoder.replace(micro_batch=2)  # type: ignore[call-arg]
    one_each = torch.arange(3)
    for wrong in (
        torch.zeros(dim),
        torch.zeros(3, dim + 1),
        torch.zeros(3, 2, dim),
        torch.zeros(3, dim, dtype=torch.int64),
        torch.zeros(3, dim, dtype=torch.bool),
        torch.zeros(3, dim, dtype=torch.complex64),
    ):
        with refused(InvalidInput, "gradients"):
            encoder.encode(wrong)
        with refused(InvalidInput, "gradients"):
            encoder.encode_sum(wrong)
        with refused(InvalidInput, "gradients"):
            pairs.encode_sum(wrong, one_each[: len(wrong)])
    rows = torch.zeros(3, dim)
    for groups in (None, torch.arange(4), torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64)):
        with refused(InvalidInput, "groups"):
            pairs.encode_sum(rows, groups)
        if groups is not None:
            with refused(InvalidInput, "groups"):
                encoder.encode_sum(rows, groups)
    for field, values in {
        "dim": (0, -1, 2.5, math.nan, math.inf, "50", True),
        "radius": (0, -1.0, math.nan, math.inf, "1", True, None),
        "micro_batch": (0, -1, 1.5, math.nan, "2", True, None),
    }.items():
        for value in values:
            with refused(InvalidInput, field):
                encoder.replace(**{field: value})


def check_text(encoder: Encoder) -> None:
    """Round trip of the text; use in a mechanism with a noise that suits every image."""
    again = parse(repr(encoder), Encoder)
    assert again == encoder
    assert hash(again) == hash(encoder)
    with pytest.raises(AttributeError):
        encoder.radius = 2.0  # type: ignore[misc]
    mechanism = Mechanism(encoder, Gaussian(scale=1.0), rate=0.1, steps=3)
    assert Mechanism.from_toml(mechanism.to_toml()) == mechanism
    with refused(InvalidInput, "no dimension"):
        _ = encoder.replace(dim=None).known_dim


ENCODER_CHECKS: tuple[Callable[[Encoder], None], ...] = (
    check_image,
    check_total,
    check_neighbours,
    check_micro_batches,
    check_bad_input,
    check_text,
)


def check_profiles(family: Profiles, dim: int = 50) -> None:
    """P1's other half: ascending, covering every coordinate, and at most 1 in squared norm, in exact arithmetic."""
    blocks = family.build(dim)
    assert sum(block.dim for block in blocks) == dim
    longest = Fraction(0)
    for block in blocks:
        assert np.all(np.diff(block.levels, axis=1) >= 0)
        assert np.all(block.levels >= 0)
        squares = [exact_square(block, row) for row in range(len(block))]
        for square, norm in zip(squares, block.norms.tolist(), strict=True):
            assert square <= Fraction(norm) ** 2
        longest += max(squares)
    assert longest <= 1, "too long"
    assert longest > Fraction(1, 20), "a profile that lets nothing through"
    assert parse(repr(family), Profiles) == family
    assert hash(parse(repr(family), Profiles)) == hash(family)
    again = family.build(dim)
    assert all(np.array_equal(a.levels, b.levels) for a, b in zip(blocks, again, strict=True))
