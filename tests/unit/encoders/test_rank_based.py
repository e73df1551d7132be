"""Ranked and Snap against a slow implementation of the paper, and the choice among profiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from noisette import Encoder
from noisette.encoders import Ranked, Snap
from noisette.encoders.profiles import Blocks, HalfNormal, PaperGaussian, Power, Tails
from noisette.errors import InvalidInput
from tests.conformance.encoder_checks import outside_image
from tests.support import slow_ranked
from tests.support.helpers import by_rank, ordinary_rows, refused

FAMILIES = [
    HalfNormal(),
    HalfNormal(levels=4),
    Tails(),
    PaperGaussian(n=30),
    PaperGaussian(n=5, threshold=0.4),
    Power(),
]
KINDS = [(Ranked, slow_ranked.ranked), (Snap, slow_ranked.snap)]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("kind", "slow"), KINDS, ids=["Ranked", "Snap"])
def test_is_the_papers_algorithm(kind: type[Encoder], slow: object, family: object) -> None:
    encoder = kind(dim=40, profiles=family, radius=0.7)
    (block,) = encoder.blocks
    rows = ordinary_rows(60, 40, seed=5)
    expected = np.stack([slow(row, by_rank(block)) for row in rows.numpy()])
    _alike(encoder, rows, expected)


def _alike(encoder: Encoder, rows: torch.Tensor, expected: np.ndarray) -> None:
    """Encoded as expected, and then rounded toward zero by less than a step."""
    short = np.abs(expected) - np.abs(encoder.encode(rows).numpy())
    assert -1e-13 <= short.min() <= short.max() < encoder.quantum
    assert np.all(expected * encoder.encode(rows).numpy() >= 0)


@pytest.mark.parametrize(("kind", "slow"), KINDS, ids=["Ranked", "Snap"])
def test_blocks_are_encoded_apart(kind: type[Encoder], slow: object) -> None:
    encoder = kind(dim=40, profiles=Blocks(dims=(25, 15), shares=(0.5, 0.4), profiles=Tails()))
    rows = ordinary_rows(40, 40, seed=6)
    first, second = (by_rank(block) for block in encoder.blocks)
    expected = [np.concatenate([slow(row[:25], first), slow(row[25:], second)]) for row in rows.numpy()]
    _alike(encoder, rows, np.stack(expected))


def test_the_highest_cosine_is_chosen() -> None:
    """A gradient that is a shuffled, signed profile gets exactly that profile: argmax, not the printed argmin."""
    encoder = Ranked(dim=50, profiles=Tails())
    (block,) = encoder.blocks
    rng = np.random.default_rng(0)
    for psi in by_rank(block):
        order, signs = rng.permutation(50), rng.choice([-1.0, 1.0], 50)
        row = torch.from_numpy(100 * (psi * signs)[order])[None]
        _alike(encoder, row, (psi * signs)[order])


def test_several_profiles_lose_less() -> None:
    """What the choice is for: peaky and dense rows both keep more of their direction."""
    rows = ordinary_rows(300, 200, seed=9)
    rows = rows / rows.norm(dim=1, keepdim=True)

    def kept(profiles: object) -> float:
        return float((Ranked(dim=200, profiles=profiles).encode(rows) * rows).sum(dim=1).mean())

    assert kept(Tails()) > kept(HalfNormal()) + 0.02


def test_small_gradients() -> None:
    """Ranked leaves a gradient below its profile alone; Snap lifts it to full length."""
    rows = ordinary_rows(20, 50, seed=3)
    rows = 1e-3 * rows / rows.abs().amax(dim=1, keepdim=True)
    (block,) = Ranked(dim=50).blocks
    assert block.levels[0, 0] > 1e-3
    _alike(Ranked(dim=50), rows, rows.numpy())
    torch.testing.assert_close(Snap(dim=50).encode(rows).norm(dim=1), torch.ones(20, dtype=torch.float64))


def test_scale_of_a_gradient_does_not_change_the_choice() -> None:
    rows = ordinary_rows(50, 40, seed=4)
    encoder = Snap(dim=40, profiles=Tails())
    for factor in (2.0**-40, 2.0**60):
        assert torch.equal(encoder.encode(rows * factor), encoder.encode(rows))


def test_a_zero_level_makes_the_encoding_sparse() -> None:
    encoder = Ranked(dim=1000, profiles=PaperGaussian(n=3, threshold=0.5))
    zeros = (encoder.encode(ordinary_rows(20, 1000, seed=8)) == 0).double().mean()
    assert 0.3 < zeros < 0.5  # P(|N(0, 1)| < 0.5) = 0.38


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats()))
def test_total_on_any_floats(rows: np.ndarray) -> None:
    """Whatever the bits are, the encoding is finite and in the image."""
    dim = rows.shape[1]
    for encoder in (Ranked(dim=dim, profiles=Tails()), Snap(dim=dim, profiles=Tails())):
        assert outside_image(encoder.encode(torch.from_numpy(rows)), encoder.image) == []


def test_tiny_and_huge_radii() -> None:
    """Squares of levels under- or overflow; the norm of the image does not."""
    for radius in (1e-200, 1e200):
        encoder = Ranked(dim=50, profiles=Tails(), radius=radius)
        assert encoder.image.norm == pytest.approx(radius, rel=1e-9)
        encoded = encoder.encode(torch.full((1, 50), 1e250, dtype=torch.float64))
        assert 0 < float(encoded.abs().max()) <= radius


def test_profiles_must_be_a_family() -> None:
    for wrong in (None, 3, (0.1, 0.2), HalfNormal):
        with refused(InvalidInput, "profile family"):
            Ranked(dim=5, profiles=wrong)  # type: ignore[arg-type]
