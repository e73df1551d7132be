"""Grids: sums on them are exact, and a release tells the cell that the ideal one fell into, no more."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisette._quantization import MAX_ROWS, Grid, toward_zero
from noisette._spec import registered
from noisette.encoders import Encoder
from tests.support.bucketed import VARIANTS
from tests.support.helpers import adversarial_rows, ordinary_rows, refused

CASES = [(largest, scale) for largest in (1e-12, 0.37, 1.0, 3e6) for scale in (1e-9, 0.001, 0.5, 1.0, 5e3, 1e12)]


@pytest.mark.parametrize(("largest", "scale"), CASES)
def test_a_grid_is_made_of_powers_of_two_and_has_room(largest: float, scale: float) -> None:
    grid = Grid.of(largest, scale)
    assert all(
        math.frexp(step)[0] == 0.5 for step in (grid.sum_quantum, grid.release_quantum, grid.max_sum, grid.clamp)
    )
    assert Fraction(grid.release_quantum) % Fraction(grid.sum_quantum) == 0
    assert Fraction(largest) * MAX_ROWS <= Fraction(grid.max_sum) <= Fraction(grid.sum_quantum) * 2**53, (
        "whole steps add exactly"
    )
    assert Fraction(grid.clamp) + 2 * Fraction(grid.max_sum) <= Fraction(grid.release_quantum) * 2**53, (
        "and so do whole cells"
    )
    assert grid.release_quantum == grid.sum_quantum or scale / 128 < grid.release_quantum <= scale / 64
    assert grid.clamp >= 2 * grid.max_sum
    assert grid.clamp >= 2**20 * scale


def test_nonsense_is_refused() -> None:
    for case in ((0.0, 1.0), (1.0, -1.0), (1.0, math.nan), (1e308, 1.0), (1.0, 1e305)):
        with refused():
            Grid.of(*case)


@pytest.mark.parametrize("encoder", [one for cls in registered(Encoder).values() for one in cls.examples()], ids=repr)
def test_rounded_rows_stay_in_the_image_and_their_sum_is_exact_in_any_order(encoder: Encoder) -> None:
    if encoder.micro_batch > 1:
        encoder = encoder.replace(micro_batch=1)
    dim = encoder.known_dim
    rows = torch.cat([ordinary_rows(200, dim, seed=3), *(rows.double() for _, rows in adversarial_rows(dim))])
    rounded, ideal = encoder.encode(rows), encoder._encode(torch.where(rows.isfinite().all(1, keepdim=True), rows, 0.0))
    assert torch.equal(rounded, toward_zero(ideal, encoder.quantum))
    assert bool((rounded.abs() <= ideal.abs()).all())
    assert bool(((rounded - ideal).abs() < encoder.quantum).all())
    exact = [sum(Fraction(value) for value in column) for column in rounded.T.tolist()]
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(rows)))
    for total in (rounded.sum(0), rounded[order].sum(0), sum(part.sum(0) for part in rounded[order].split(7))):
        assert [Fraction(value) for value in total.tolist()] == exact


@pytest.mark.parametrize(("largest", "scale"), CASES)
@pytest.mark.parametrize("variant", [*VARIANTS, "off"])
def test_a_release_is_the_ideal_one_rounded(
    largest: float, scale: float, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against fractions: total plus noise without any rounding, cut off at the reach, in its nearest cell.

    It may be off by what a float of the noise's size rounds, and no more, however large the total is.
    """
    monkeypatch.setenv("NOISETTE_KERNEL", variant)
    grid, rng = Grid.of(largest, scale), np.random.default_rng(0)
    totals = toward_zero(
        torch.from_numpy(rng.uniform(-1, 1, 300) * grid.max_sum * 2.0 ** -rng.integers(0, 40, 300)), grid.sum_quantum
    )
    noise = torch.from_numpy(scale * rng.standard_cauchy(300) * 10 ** rng.uniform(-3, 3, 300))
    noise[:4] = torch.tensor([1e300, -1e300, math.inf, -math.inf])
    rest = totals[100:200] - torch.floor(totals[100:200] / grid.release_quantum) * grid.release_quantum
    noise[100:200] = (
        grid.release_quantum * (0.5 + 2.0**-30 * torch.from_numpy(rng.choice([-1.0, 1.0], 100))) - rest
    )  # a close call
    found = grid.add_noise(totals, noise.clone())
    monkeypatch.setenv("NOISETTE_KERNEL", "off")
    assert torch.equal(found, grid.add_noise(totals, noise.clone())), "whatever computes it"
    for total, drawn, value in zip(totals.tolist(), noise.tolist(), found.tolist(), strict=True):
        assert Fraction(value) % Fraction(grid.release_quantum) == 0
        assert abs(value) <= grid.clamp
        if math.isinf(drawn):
            assert value == math.copysign(grid.clamp, drawn)
            continue
        ideal = min(max(Fraction(total) + Fraction(drawn), -Fraction(grid.clamp)), Fraction(grid.clamp))
        slack = (Fraction(abs(drawn)) + Fraction(grid.release_quantum)) * Fraction(2) ** -53
        assert abs(Fraction(value) - ideal) <= Fraction(grid.release_quantum) / 2 + slack


def test_every_cell_can_come_from_every_sum() -> None:
    grid = Grid.of(4.0, 1.0)
    cells = torch.arange(-256, 257, dtype=torch.float64) * grid.release_quantum
    for total in toward_zero(torch.tensor([0.0, 0.1, -0.7, math.pi, 4.0, -4.0]).double(), grid.sum_quantum).tolist():
        assert torch.equal(grid.add_noise(torch.full_like(cells, total), cells - total), cells)
