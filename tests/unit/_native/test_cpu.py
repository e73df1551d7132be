"""The native kernel against the reference, on every variant that runs here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from noisette import Encoder, _native
from noisette._native import cpu, reference
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Blocks, PaperGaussian, Power, Tails
from noisette.errors import InvalidInput
from tests.conformance.encoder_checks import outside_image
from tests.support.bucketed import VARIANTS, alone, hard_rows, kernel_sum, lowest_ranks, unexplained
from tests.support.helpers import ordinary_rows, refused

RANKED = [
    Ranked(dim=50),
    Ranked(dim=50, profiles=Tails()),
    Snap(dim=50, profiles=Tails(), radius=0.1),
    Ranked(dim=47, profiles=PaperGaussian(n=37)),
    Snap(dim=1200, profiles=PaperGaussian(n=3, threshold=0.5)),  # more than 1024 levels
    Ranked(dim=600, profiles=Tails(levels=200)),  # more than 64 knots
    Ranked(dim=53, profiles=Blocks(dims=(1, 40, 12), shares=(0.2, 0.5, 0.3), profiles=Tails())),
    Ranked(dim=1),
    Snap(dim=7, radius=1e30),
]
CLIPPING = [L2(dim=50), L2(dim=50, radius=1e-30), L2(dim=1, radius=1e30), L2(dim=1203, radius=0.1)]
ALL = [*RANKED, *CLIPPING]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NOISETTE_KERNEL", request.param)
    assert _native.variant() == request.param
    return str(request.param)


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


pytestmark = pytest.mark.usefixtures("variant")


def test_the_check_itself_counts_ranks_as_the_reference() -> None:
    levels, counts = torch.arange(50.0, dtype=torch.float64)[None], torch.ones(50, dtype=torch.int64)
    for name, rows in hard_rows(50):
        finite = reference.finite_rows(rows[:3])
        assert torch.equal(lowest_ranks(finite).double(), reference.bucket_bounds(finite, levels, counts)), name


@pytest.mark.parametrize("encoder", RANKED, ids=repr)
def test_is_the_bucketed_reference_bit_for_bit(encoder: Ranked | Snap) -> None:
    for name, rows in hard_rows(encoder.known_dim):
        assert unexplained(encoder, rows, alone(encoder, rows)) == [], name


@pytest.mark.parametrize("encoder", CLIPPING, ids=repr)
def test_clips_as_the_reference(encoder: L2) -> None:
    for name, rows in hard_rows(encoder.known_dim):
        found, sum_of_all = alone(encoder, rows), kernel_sum(encoder, rows)
        expected = encoder.encode(rows)
        size = float(expected.abs().max())
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0, msg=name)
        torch.testing.assert_close(sum_of_all, expected.sum(dim=0), rtol=1e-10, atol=1e-10 * size, msg=name)


@pytest.mark.parametrize(
    ("encoder", "most"),
    [
        (Ranked(dim=5_000), 0.03),
        (Snap(dim=5_000), 0.03),
        (Ranked(dim=5_000, profiles=Tails()), 0.03),
        (Ranked(dim=5_000, profiles=PaperGaussian(n=9)), 0.03),
        (Ranked(dim=5_000, profiles=Power()), 0.06),  # as steep as no Gaussian row is
    ],
    ids=repr,
)
def test_buckets_lose_little(encoder: Encoder, most: float) -> None:
    """Against the exact encoding, by sorting, the sum over Gaussian rows is off by a few percent at most."""
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((32, 5_000))).float() + 0.1
    exact = encoder.encode(rows).sum(dim=0)
    assert float((kernel_sum(encoder, rows) - exact).norm() / exact.norm()) < most


def check_image(encoder: Encoder, count: int) -> None:
    rows = torch.cat([rows for _, rows in hard_rows(encoder.known_dim)])
    rows = torch.cat([rows, ordinary_rows(count - len(rows), encoder.known_dim, seed=11).float()])
    encoded = alone(encoder, rows)
    assert len(encoded) == count
    assert outside_image(encoded, encoder.image) == []
    assert encoded.abs().sum() > 0


@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_every_encoding_is_in_the_image(encoder: Encoder) -> None:
    """P1 for the kernel: 1e4 gradients over these encoders, rank by rank, exact inequality in float64."""
    check_image(encoder, 750)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_every_encoding_is_in_the_image_at_full_count(encoder: Encoder) -> None:
    """1e5 gradients over these encoders."""
    check_image(encoder, 7_500)


@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_one_example_moves_the_sum_by_its_encoding(encoder: Encoder) -> None:
    """P2, at every place of a group of examples that go together; order matters for rounding only."""
    rows = ordinary_rows(19, encoder.known_dim, seed=3).float()
    rows[5, 0] = torch.nan
    total, each = kernel_sum(encoder, rows), alone(encoder, rows)
    close = {"rtol": 0.0, "atol": 1e-13 * float(each.abs().max())}
    torch.testing.assert_close(total, each.sum(dim=0), **close)
    for one in (0, 5, 7, 8, 18):
        others = torch.cat([rows[:one], rows[one + 1 :]])
        torch.testing.assert_close(total - kernel_sum(encoder, others), each[one], **close)
    torch.testing.assert_close(kernel_sum(encoder, rows.flip(0)), total, **close)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_deterministic_for_a_number_of_threads(encoder: Encoder) -> None:
    rows = ordinary_rows(41, encoder.known_dim, seed=4).float()
    found = []
    for threads in (1, 2, 3, 64):  # also more threads than examples
        torch.set_num_threads(threads)
        found.append(kernel_sum(encoder, rows))
        assert all(torch.equal(kernel_sum(encoder, rows), found[-1]) for _ in range(3))
    size = float(found[0].abs().max())
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-12 * size)


def test_kept_memory_carries_nothing_from_one_call_to_the_next() -> None:
    """Calls of all encoders in a random order, and from several threads at once, find what they found alone."""
    cases = [(encoder, ordinary_rows(9, encoder.known_dim, seed=7).float()) for encoder in ALL]
    first = [kernel_sum(*case) for case in cases]
    order = np.random.default_rng(0).integers(len(cases), size=200).tolist()
    with ThreadPoolExecutor(4) as pool:
        again = [*pool.map(lambda i: kernel_sum(*cases[i]), order), *(kernel_sum(*cases[i]) for i in order)]
    assert all(torch.equal(found, first[i]) for i, found in zip(order * 2, again, strict=True))


@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_a_broken_example_counts_as_zero(encoder: Encoder) -> None:
    """At every coordinate of a small gradient, so also in the tails of vectors and of blocks."""
    dim = encoder.known_dim
    rows = ordinary_rows(9, dim, seed=2).float()
    clean = kernel_sum(encoder, torch.cat([rows[:4], rows[5:]]))
    for at, bad in itertools.product(range(0, dim, dim // 50 + 1), (torch.nan, torch.inf, -torch.inf)):
        broken = rows.clone()
        broken[4, at] = bad
        assert torch.equal(kernel_sum(encoder, broken), clean), (at, bad)


@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_no_example_and_none_that_counts(encoder: Encoder) -> None:
    dim = encoder.known_dim
    zero = torch.zeros(dim, dtype=torch.float64)
    for rows in (torch.empty(0, dim), torch.zeros(1, dim), torch.full((11, dim), torch.nan)):
        assert torch.equal(kernel_sum(encoder, rows), zero)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 11), st.integers(1, 40)), elements=st.floats(width=32)),
    st.sampled_from([Ranked, Snap]),
    st.integers(1, 5),
)
def test_any_shape_and_any_floats(values: np.ndarray, kind: type[Ranked] | type[Snap], parts: int) -> None:
    rows = torch.from_numpy(values)
    dim = rows.shape[1]
    parts = min(parts, dim)
    dims = (1,) * (parts - 1) + (dim - parts + 1,)
    encoder = kind(dim=dim, profiles=Blocks(dims=dims, profiles=Tails(shapes=(2.0, 0.4), levels=6)))
    encoded = alone(encoder, rows)
    assert outside_image(encoded, encoder.image) == []
    assert unexplained(encoder, rows, encoded) == []
    torch.testing.assert_close(kernel_sum(encoder, rows), encoded.sum(dim=0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dim", [*range(1, 70), 511, 512, 513, 1024, 1037])
def test_every_length_of_a_tail(dim: int) -> None:
    """Vectors have 4, 8 or 16 lanes and tiles 512 coordinates: no coordinate is lost or doubled at any length."""
    rows = ordinary_rows(3, dim, seed=dim).float()
    rows = (rows / rows.abs().max() * 2**7).round()  # whole numbers, which a grid for this radius holds
    for encoder in (Ranked(dim=dim, radius=2.0**27), L2(dim=dim, radius=2.0**27)):
        assert torch.equal(kernel_sum(encoder, rows), rows.double().sum(dim=0))
    snapped = Snap(dim=dim)
    assert unexplained(snapped, rows, alone(snapped, rows)) == []


def test_ten_million_coordinates(variant: str) -> None:
    dim = 10_000_000
    rows = torch.randn(1, dim, generator=torch.Generator().manual_seed(0))
    rows[0, -1] = 50.0
    ranked = kernel_sum(Ranked(dim=dim), rows)
    (block,) = Ranked(dim=dim).blocks
    ascending = np.sort(ranked.abs().float().numpy())  # encodings are single precision numbers
    ends = np.cumsum(block.counts)
    assert np.all(ascending[ends - 1].astype(np.float64) <= block.levels[0])  # the largest of each level
    assert 0.99 < float(ranked.norm()) <= 1
    assert torch.all(ranked * rows[0] >= 0)
    clipped = kernel_sum(L2(dim=dim, radius=2.0), rows)
    exact = rows[0].double() * (2.0 / torch.linalg.vector_norm(rows.double()))
    assert 2 - 1e-4 < float(torch.linalg.vector_norm(clipped)) <= 2
    torch.testing.assert_close(clipped, exact, rtol=3e-7, atol=L2(dim=dim, radius=2.0).quantum)


def test_rows_of_other_types_take_the_reference() -> None:
    """The kernel is for single precision; `encode_sum` says nothing of which path it takes, only the same sum."""
    encoder = Ranked(dim=50, radius=1e3)
    rows = torch.randn(5, 50, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float64, torch.bfloat16):
        given_rows = rows.to(dtype)
        assert not cpu.kernel_supports(given_rows)
        expected = given_rows.double().sum(dim=0)
        found = encoder.encode_sum(given_rows).unsafe_values()
        torch.testing.assert_close(found, expected, rtol=0, atol=len(rows) * encoder.quantum)
    assert cpu.kernel_supports(rows)
    with refused(InvalidInput, "gradients"):
        encoder.encode_sum(rows[:, :49])
