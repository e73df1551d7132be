"""What several test modules need: the form of an error, gradients that are hard to encode, exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisette.encoders.profiles import ProfileSet
from noisette.errors import NoisetteError
from noisette.mechanism import Mechanism


@contextmanager
def refused(
    kind: type[NoisetteError] = NoisetteError, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[NoisetteError]]:
    """The block raises `kind` with a message of one sentence, a blank line and a hint."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert_well_formed(caught.value)


def assert_well_formed(error: NoisetteError) -> None:
    sentence, blank, hint = str(error).split("\n")  # exactly three lines, or this line fails
    assert sentence == error.sentence
    assert sentence.endswith(".")
    assert ". " not in sentence, "one sentence only"
    assert blank == ""
    assert hint == f"hint: {error.hint}"
    assert error.hint


def ordinary_rows(n: int, dim: int, seed: int) -> torch.Tensor:
    """Gradients from dense to very peaky and of every length between 1e-3 and 1e3, float64 (n, dim)."""
    rng = np.random.default_rng(seed)
    shape = rng.uniform(0.5, 4.0, (n, 1))
    rows = rng.standard_normal((n, dim))
    rows = np.sign(rows) * np.abs(rows) ** shape * 10 ** rng.uniform(-3, 3, (n, 1))
    return torch.from_numpy(rows)


def adversarial_rows(dim: int, seed: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Named batches on which ranking, norms and clipping are likely to go wrong; 16-, 32- and 64-bit."""
    rng = np.random.default_rng(seed)
    normal = torch.from_numpy(rng.standard_normal((40, dim)))
    eye = torch.eye(dim, dtype=torch.float64)
    yield "zeros", torch.zeros(3, dim)
    yield "negative zeros", -torch.zeros(2, dim)
    yield "all equal", torch.full((2, dim), 0.37)
    yield "all equal and huge", torch.full((2, dim), 1e300, dtype=torch.float64)
    yield "equal in magnitude, mixed signs", normal.sign()
    yield "many ties", (normal * 2).round()
    yield "ties at 32 bits only", 1 + normal * 1e-12
    yield "one hot", eye
    yield "one hot, huge", eye * -1e300
    yield "one hot, denormal", eye * 5e-324
    yield "denormal", normal * 1e-310
    yield "denormal at 32 bits", (normal * 1e-40).float()
    yield "1e38", (normal * 1e38).clamp(-3e38, 3e38).float()
    yield "beyond 32 bits", normal * 1e39
    yield "1e300", normal * 1e300
    yield "the largest float", torch.full((1, dim), torch.finfo(torch.float64).max, dtype=torch.float64)
    yield "sixteen bits", normal.half()
    yield "brain floats", normal.bfloat16()
    yield "thirty-two bits", normal.float()
    yield "600 orders of magnitude", torch.from_numpy(10 ** rng.uniform(-300, 300, (40, dim)))
    for value in (torch.nan, torch.inf, -torch.inf):
        broken = normal.clone()
        broken[:, 0] = value
        broken[::2, -1] = value
        yield f"one {value}", broken
    yield "all nan", torch.full((2, dim), torch.nan)
    yield "inf at 16 bits", torch.full((2, dim), 1e6).half()
    yield "nan beside huge", torch.full_like(eye, 1e300).masked_fill(eye > 0, torch.nan)


def exact_square(block: ProfileSet, row: int) -> Fraction:
    """The sum of count * level**2 of one profile, without any rounding."""
    pairs = zip(block.levels[row].tolist(), block.counts.tolist(), strict=True)
    return sum((count * Fraction(level) ** 2 for level, count in pairs), Fraction(0))


def by_rank(block: ProfileSet) -> np.ndarray:
    """The profiles with one value for each rank, (n, dim), ascending."""
    return np.repeat(block.levels, block.counts, axis=1)


def rows_within(encoded: np.ndarray, block: ProfileSet) -> np.ndarray:
    """For each row (B, dim of the block): is some profile at least as large at every rank, exactly?"""
    ascending = np.sort(np.abs(encoded), axis=1)
    inside = np.zeros(len(encoded), dtype=bool)
    for psi in by_rank(block):
        inside |= np.all(ascending <= psi, axis=1)
    return inside


def spread(mechanism: Mechanism, values: torch.Tensor) -> np.ndarray:
    """Released `values` moved at random within the cells of the mechanism's grid: as good as never rounded to tests."""
    half = mechanism.grid.release_quantum / 2
    return values.numpy() + np.random.default_rng(0).uniform(-half, half, values.shape)
