"""The bucketed reference stays inside the exact bound, on every hard input, and loses little."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from noisette._native import reference
from noisette.encoders.profiles import Blocks, HalfNormal, PaperGaussian, Power, Profiles, ProfileSet, Tails
from tests.support.helpers import adversarial_rows, ordinary_rows, rows_within

FAMILIES = [
    HalfNormal(),
    Tails(shapes=(2.0, 0.7, 0.3)),
    PaperGaussian(n=3),
    Power(),
    Blocks(dims=(30, 20), profiles=Tails(shapes=(2.0, 0.4))),
]


def tensors(block: ProfileSet) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(block.levels), torch.from_numpy(block.counts)


def hard_rows(dim: int) -> list[tuple[str, torch.Tensor]]:
    named = [("ordinary", ordinary_rows(200, dim, seed=1)), *adversarial_rows(dim)]
    return [(name, reference.finite_rows(rows)) for name, rows in named]


def bucket_faults(bucket: Callable[..., torch.Tensor], family: Profiles) -> list[str]:
    """Inputs on which bucketed bounds exceed exact ones, coordinate by coordinate, for any single profile.

    With several profiles the two may choose differently; then the row is within the profile that it chose.
    """
    faults = []
    start = 0
    for block in family.build(50):
        for name, rows in hard_rows(50):
            part = rows[:, start : start + block.dim]
            for single in block:
                if torch.any(bucket(part, *tensors(single)) > reference.exact_bounds(part, *tensors(single))):
                    faults.append(f"{name}: above the exact bound")
            clipped = torch.minimum(part.abs(), bucket(part, *tensors(block)))
            if not rows_within(clipped.numpy(), block).all():
                faults.append(f"{name}: above every profile")
        start += block.dim
    return faults


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_buckets_stay_inside_the_exact_bound(family: Profiles) -> None:
    assert bucket_faults(reference.bucket_bounds, family) == []


def test_the_highest_rank_of_a_bucket_is_caught() -> None:
    """The check can fail: one rank too high in each bucket is above the exact bound."""

    def too_high(rows: torch.Tensor, levels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        bounds = reference.bucket_bounds(rows, levels, counts)
        by_rank = levels[:1].repeat_interleave(counts, dim=1)[0]
        return by_rank[(torch.searchsorted(by_rank, bounds, right=True)).clamp(max=len(by_rank) - 1)]

    assert bucket_faults(too_high, PaperGaussian(n=1)) != []


@pytest.mark.parametrize("family", [HalfNormal(), Tails(), PaperGaussian(n=6)], ids=repr)
def test_buckets_lose_little(family: Profiles) -> None:
    """Utility: the relative L2 error of the sum over Gaussian rows is below 3%, so that zero is no way out."""
    dim = 5_000
    (block,) = family.build(dim)
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((32, dim))) + 0.1
    bounds = reference.exact_bounds(rows, *tensors(block))
    exact = torch.minimum(torch.maximum(rows, -bounds), bounds).sum(dim=0)
    close = reference.bucket_bounds(rows, *tensors(block))
    quick = torch.minimum(torch.maximum(rows, -close), close).sum(dim=0)
    assert float((exact - quick).norm() / exact.norm()) < 0.03


def test_buckets_choose_as_well() -> None:
    """The profile chosen from the histogram has nearly the highest cosine."""
    (block,) = Tails().build(1000)
    rows = ordinary_rows(200, 1000, seed=5)
    rows = rows / rows.norm(dim=1, keepdim=True)
    kept = []
    for bounds in (reference.exact_bounds, reference.bucket_bounds):
        limit = bounds(rows * 1e6, *tensors(block))  # everything is clipped, so that the bound is the encoding
        kept.append((limit * rows.abs()).sum(dim=1) / limit.norm(dim=1))
    assert float((kept[0] - kept[1]).mean()) < 0.01


def test_exact_bounds_are_a_permutation_of_a_profile() -> None:
    for family in FAMILIES[:4]:
        (block,) = family.build(50)
        for name, rows in hard_rows(50):
            bounds = np.sort(reference.exact_bounds(rows, *tensors(block)).numpy(), axis=1)
            options = np.repeat(block.levels, block.counts, axis=1)
            assert all(any(np.array_equal(row, psi) for psi in options) for row in bounds), name


def test_finite_rows() -> None:
    rows = torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 1.0], [1.0, -torch.inf], [3e38, -3e38]])
    clean = reference.finite_rows(rows)
    assert clean.dtype == torch.float64
    assert torch.equal(clean[[1, 2, 3]], torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(clean[[0, 4]], rows[[0, 4]].double())
