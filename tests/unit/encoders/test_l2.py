"""L2 clipping against torch's own, and at the edges of float64."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from noisette._gradients.grad_forms import DenseRows, OuterProduct
from noisette._native.reference import allowed
from noisette.encoders import L2
from tests.support.gradient_models import encoded
from tests.support.helpers import adversarial_rows, ordinary_rows


@pytest.mark.parametrize("radius", [1.0, 0.1, 37.0])
def test_agrees_with_torch(radius: float) -> None:
    rows = ordinary_rows(200, 30, seed=1)
    ours = L2(dim=30, radius=radius).encode(rows)
    norms = rows.norm(dim=1)
    assert (norms > radius).any()
    assert (norms <= radius).any()
    for row, mine in zip(rows, ours, strict=True):
        parameter = torch.nn.Parameter(torch.zeros(30, dtype=torch.float64))
        parameter.grad = row.clone()
        torch.nn.utils.clip_grad_norm_([parameter], radius)
        # torch divides by norm + 1e-6
        torch.testing.assert_close(mine, parameter.grad, rtol=2e-6 / min(radius, 1), atol=2.0**-26 * radius)


def test_short_rows_are_untouched_but_for_the_grid() -> None:
    rows = ordinary_rows(50, 30, seed=2)
    rows = rows / rows.norm(dim=1, keepdim=True) * 0.999
    encoded = L2(dim=30).encode(rows)
    assert bool((encoded.abs() <= rows.abs()).all())
    assert bool(((encoded - rows).abs() < 2.0**-27).all())
    assert torch.equal(L2(dim=30).encode(encoded), encoded)


def test_norm_in_exact_arithmetic() -> None:
    """No clipped row is longer than the radius, with no rounding in the test at all."""
    for name, rows in adversarial_rows(7):
        for row in L2(dim=7, radius=0.1).encode(rows).tolist():
            assert sum(Fraction(x) ** 2 for x in row) <= Fraction(0.1) ** 2, name


@pytest.mark.parametrize("dim", [1, 1_000_000])
def test_many_equal_coordinates(dim: int) -> None:
    """The rounding of a long sum of squares does not let a row out of the ball."""
    for value in (0.1, 1 / 3, 7.7, 1e-3 * (1 + 2.0**-30)):
        row = L2(dim=dim).encode(torch.full((1, dim), value, dtype=torch.float64))[0]
        assert dim * Fraction(row[0].item()) ** 2 <= 1
        assert math.sqrt(dim) * (row[0].item() + 2.0**-27) >= min(1.0, math.sqrt(dim) * value) * (1 - 3e-7)


def test_its_image_is_a_ball() -> None:
    image = L2(dim=5, radius=0.3).image
    assert image.norm == 0.3
    assert image.profiles == ()
    assert L2(dim=5, radius=0.3, micro_batch=4).image.norm == 0.6


def test_every_path_clips_to_the_same_norm() -> None:
    """The reference, each variant of the kernel and the factored sum of a Linear layer: one rule."""
    x, g = torch.randn(1, 40, generator=torch.Generator().manual_seed(1)), torch.full((1, 3), 7.0)
    row = torch.cat([torch.outer(g[0], x[0]).flatten(), g[0]])[None]
    encoder = L2(dim=row.shape[1], radius=0.3)
    found = {"reference": encoder.encode(row)[0]}
    kernel, limits = encoder.kernel(), dict[str, float]()
    if kernel is not None:
        limits |= dict.fromkeys(("factored", "both"), kernel.with_products(256)[1])  # room for what products round
        found["kernel"] = kernel.rows_sum(row)
        found["factored"] = encoded(kernel, {OuterProduct(x, g): 120, OuterProduct(torch.ones(1, 1), g): 3}, 1)
        found["both"] = encoded(kernel, {OuterProduct(x, g): 120, DenseRows(g): 3}, 1)
    for name, clipped in found.items():
        norm = float(torch.linalg.vector_norm(clipped))
        assert norm <= encoder.radius, name
        assert norm == pytest.approx(limits.get(name, allowed(encoder.radius)), rel=1e-6), name
