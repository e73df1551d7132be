"""The factored sum equals clipping one row per example, on ordinary and on hostile gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette._kernels import reference
from noisette.encode import L2
from noisette.gradients import Gradients
from noisette.gradients.ghost import l2_sum
from tests.helpers import ordinary_rows

SIZES = [(7, 3), (3, 5), (5, 2)]


def layers(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    return [
        (ordinary_rows(count, i, seed + n).to(dtype), ordinary_rows(count, o, seed + 50 + n).to(dtype))
        for n, (i, o) in enumerate(SIZES)
    ]


def materialised(pairs: list[tuple[Tensor, Tensor]], biases: list[bool]) -> Tensor:
    """Gradients (B, dim), one row for each example."""
    parts = []
    for (x, g), has in zip(pairs, biases, strict=True):
        parts.append(torch.einsum("bo,bi->boi", g.double(), x.double()).flatten(1))
        if has:
            parts.append(g.double())
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("biases", [[True] * 3, [False] * 3, [True, False, True]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sum_is_that_of_clipped_rows(radius: float, biases: list[bool], dtype: torch.dtype) -> None:
    pairs = layers(300, dtype=dtype)
    expected = reference.clip_norm(reference.finite_rows(materialised(pairs, biases)), radius).sum(dim=0)
    found = l2_sum(pairs, radius, biases)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


def test_the_order_is_the_layout_s() -> None:
    """Against the encoder on per-example gradients of a real network, which nothing here has touched."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    x, y = torch.randn(40, 6).double() * 3, torch.randint(4, (40,))
    gradients = Gradients(model, nn.CrossEntropyLoss(), chunk=40)
    (rows,) = gradients.chunks((x, y))
    hidden = model[0](x)
    bent = torch.tanh(hidden)
    logits = model[2](bent)
    end = torch.softmax(logits, dim=1) - nn.functional.one_hot(y, 4)
    inner = (end @ model[2].weight) * (1 - bent**2)
    found = l2_sum([(x, inner.detach()), (bent.detach(), end.detach())], 2.5)
    expected = L2(dim=gradients.dim, radius=2.5).encode_sum(rows).unsafe_values()
    assert (torch.linalg.vector_norm(rows, dim=1) > 2.5).sum() in range(5, 40), "some are clipped"
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", range(6))
def test_an_example_that_is_not_finite_counts_as_zero(bad: float, where: int) -> None:
    pairs = layers(9)
    zeroed = [(x.clone(), g.clone()) for x, g in pairs]
    for tensor in (tensor for pair in zeroed for tensor in pair):
        tensor[0] = 0
    pairs[where // 2][where % 2][0, -1] = bad
    assert torch.equal(l2_sum(pairs, 0.5), l2_sum(zeroed, 0.5))


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-150, 1e-40, 1e38, 1e150, 1e300, 1.7e308])
@pytest.mark.parametrize("other", [1e-300, 1.0, 1e300])
def test_one_example_moves_the_sum_by_at_most_the_radius(scale: float, other: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        signs = np.sign(rng.standard_normal((1, 40)))
        x = torch.from_numpy(signs * rng.uniform(0.1, 1, (1, 40)) * scale)
        g = torch.from_numpy(rng.uniform(-1, 1, (1, 4)) * other)
        moved = l2_sum([(x, g)], 0.3)
        assert torch.isfinite(moved).all()
        assert float(torch.linalg.vector_norm(moved)) <= 0.3


def test_blocks_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = layers(100)
    whole = l2_sum(pairs, 0.1)
    monkeypatch.setattr("noisette.gradients.ghost._BLOCK", 7 * sum(i + o for i, o in SIZES))
    assert torch.allclose(l2_sum(pairs, 0.1), whole, rtol=1e-12)


def test_an_empty_batch_is_zero() -> None:
    found = l2_sum([(torch.zeros(0, 3), torch.zeros(0, 2))], 1.0)
    assert torch.equal(found, torch.zeros(8, dtype=torch.float64))
