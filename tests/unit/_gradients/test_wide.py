"""Weights that are large beside the number of positions: clipped sums without a row that waits for its norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients, grad_forms
from noisette._gradients.batch_invariance import ChunkSizes
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import DenseRows, GradForm, LargeOuterProducts, SummedOuterProducts, outer_product
from noisette._gradients.lookup import EmbeddingRows
from noisette._native import reference
from noisette.encoders import L2
from tests.support.bucketed import VARIANTS
from tests.support.gradient_models import Then, encoded
from tests.support.helpers import ordinary_rows
from tests.support.rule_cases import bent
from tests.unit._gradients.test_fused_clip import SCALES, cancelling, clipping

COUNT, TOKENS, WIDTH, HIGH = 19, 3, 8, 11


@pytest.fixture(params=VARIANTS, autouse=True)
def small_slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several slices, the last one of fewer outputs, by every variant of the kernel."""
    monkeypatch.setenv("NOISETTE_KERNEL", request.param)
    monkeypatch.setattr(grad_forms, "_SLICE", 4 * WIDTH)


def seen(count: int = COUNT, seed: int = 0) -> tuple[Tensor, Tensor]:
    """What a layer may have seen, x (B, T, in) and g (B, T, out), float32: some examples are small and some large."""
    x, g = (ordinary_rows(count, TOKENS * n, seed + n).float().view(count, TOKENS, n) for n in (WIDTH, HIGH))
    return x, g


def beside(x: Tensor, g: Tensor) -> dict[GradForm, int]:
    """A large weight, with its bias and a table."""
    index = (torch.arange(TOKENS) % 2).repeat(len(x), 1)
    return {
        LargeOuterProducts(x, g): WIDTH * HIGH,
        DenseRows(g.sum(dim=1)): HIGH,
        EmbeddingRows(index, x, 5): 5 * WIDTH,
    }


def length(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector))


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0, 1e3, 1e7])
def test_the_clipped_sum_is_that_of_clipped_rows(radius: float) -> None:
    made = beside(*seen())
    rows = torch.cat([term.rows(slice(None), torch.empty(COUNT, n)) for term, n in made.items()], dim=1)
    within = clipping(radius).with_products(256)[1]
    expected = reference.clip_norm(reference.finite_rows(rows), within).sum(dim=0)
    found = encoded(clipping(radius), made, COUNT)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6 * float(expected.abs().max()))


def test_rows_and_norms_are_those_of_products() -> None:
    x, g = seen()
    wide, rows = LargeOuterProducts(x, g), torch.empty(COUNT, WIDTH * HIGH)
    expected = torch.einsum("bto,bti->boi", g.double(), x.double()).flatten(1)
    for some in (slice(None), slice(4, 9), slice(2, 2)):
        torch.testing.assert_close(wide.rows(some, rows[some]).double(), expected[some], rtol=1e-5, atol=1e-6)
    squares = expected.square().sum(dim=1)
    assert (wide.square_norms() >= squares * (1 - 1e-6)).all()
    torch.testing.assert_close(wide.square_norms(), squares, rtol=1e-5, atol=1e-9)


def test_one_example_moves_the_sum_by_exactly_its_own_encoding() -> None:
    """Whoever else is there: the difference of two sums on the grid has no rounding of its own."""
    x, g = seen(10)
    kernel, every = clipping(0.3), list(range(10))
    whole = encoded(kernel, beside(x, g), 10)
    for one in every:
        others = [number for number in every if number != one]
        alone = encoded(kernel, beside(x[[one]], g[[one]]), 1)[: WIDTH * HIGH]
        moved = (whole - encoded(kernel, beside(x[others], g[others]), 9))[: WIDTH * HIGH]
        assert torch.equal(moved, alone)


@pytest.mark.parametrize("scale", SCALES)
def test_one_example_stays_within_the_radius(scale: float) -> None:
    rng = np.random.default_rng(1)
    for other in SCALES:
        x = torch.from_numpy(rng.uniform(-1, 1, (1, 4, WIDTH)) * scale).float()
        g = torch.from_numpy(rng.uniform(-1, 1, (1, 4, HIGH)) * other).float()
        moved = encoded(clipping(0.3), {LargeOuterProducts(x, g): WIDTH * HIGH, DenseRows(g): 4 * HIGH}, 1)
        assert torch.isfinite(moved).all()
        assert length(moved) <= 0.3


@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e6, 1e7])
def test_terms_that_cancel_over_tokens_stay_within_the_radius(ratio: float) -> None:
    for seed in range(10):
        x, g = cancelling(ratio, seed=seed)
        assert length(encoded(clipping(0.3), {LargeOuterProducts(x, g): 40, DenseRows(g.sum(dim=1)): 5}, 1)) <= 0.3


@pytest.mark.parametrize("off", [0.0, 1e-3, 0.5, 1.0, 2.0, 1e6])
def test_norms_that_are_wrong_let_nobody_out(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soundness does not rest on them: a row is brought within the norm that it was said to have."""
    honest = grad_forms._gram
    monkeypatch.setattr(grad_forms, "_gram", lambda values: honest(values) * off)
    x, g = seen()
    for one in range(COUNT):
        made: dict[GradForm, int] = {
            LargeOuterProducts(x[[one]], g[[one]]): WIDTH * HIGH,
            DenseRows(g[[one]].sum(dim=1)): HIGH,
        }
        assert length(encoded(clipping(0.3), made, 1)) <= 0.3


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38])
@pytest.mark.parametrize("where", [0, 1])
def test_an_example_that_is_not_finite_counts_as_zero(bad: float, where: int) -> None:
    """In all of its coordinates; also one whose products may leave the range of a float."""
    parts, zeroed = seen(9), seen(9)
    for part in zeroed:
        part[2] = 0
    parts[where][2, 0, 0] = bad
    parts[1 - where][2, 0, 0] = 3e38
    assert torch.equal(encoded(clipping(0.5), beside(*parts), 9), encoded(clipping(0.5), beside(*zeroed), 9))


def test_which_weights_are_large() -> None:
    """By their shapes alone, which are public."""
    x, g = torch.zeros(2, 16, 512), torch.zeros(2, 16, 512)
    assert isinstance(outer_product(x, g), LargeOuterProducts)
    assert isinstance(outer_product(x.double(), g.double()), SummedOuterProducts), "which the kernel does not take"
    assert isinstance(outer_product(x[:, :, :64], g), SummedOuterProducts), "positions are not few beside its width"
    assert isinstance(outer_product(x[:, :2, :8], g[:, :2, :8]), SummedOuterProducts), "its rows are small"


def model() -> nn.Module:
    return Then(nn.Linear(512, 512), 1, after=lambda h: h.tanh().mean(dim=(1, 2), keepdim=True))


def test_no_row_waits_for_a_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, honest = list[int](), Layout.rows
    monkeypatch.setattr(Layout, "rows", lambda self, count: asked.append(count) or honest(self, count))
    gradients, batch = PerExampleGradients(model(), bent), (torch.randn(5, 4, 512), torch.zeros(5))
    gradients._fused_sum(L2(dim=gradients.dim), batch)  # which tries the sizes that it needs
    asked.clear()
    assert gradients._fused_sum(L2(dim=gradients.dim), batch) is not None
    assert set(asked) == {0}


def test_norms_that_depend_on_the_company_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all chunks have one size, in which there is one company."""
    monkeypatch.setattr(grad_forms, "_SLICE", 1 << 16)
    batch, honest = (torch.randn(2, 4, 512), torch.zeros(2)), grad_forms._gram
    gradients = PerExampleGradients(model(), bent, chunk=16)
    gradients.check(batch)
    assert gradients._planner is not None
    assert gradients._planner.first.sizes.least < 16
    monkeypatch.setattr(grad_forms, "_gram", lambda values: honest(values) * (1 + 1e-9 * len(values)))
    gradients.check(batch)
    assert gradients._planner.first.sizes == ChunkSizes(16, 16)
    assert gradients._planner.first.limit == 16
