"""Grids of releases: sums on them are exact, and a release tells the cell that the ideal one fell into, no more."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisette.encode import Encoder
from noisette.grid import Grid
from noisette.spec import registered
from tests.helpers import adversarial_rows, ordinary_rows, refused

CASES = [
    (scale, bound, reach)
    for scale in (1e-12, 0.37, 1.0, 5e3)
    for bound in (0.5, 1.0, 1024.0, 3e6)
    for reach in (0.1, 1.0, 2.0**20)
]


@pytest.mark.parametrize(("scale", "bound", "reach"), CASES)
def test_a_grid_is_made_of_powers_of_two_and_has_room(scale: float, bound: float, reach: float) -> None:
    grid = Grid.of(scale, bound, reach)
    assert all(math.frexp(step)[0] == 0.5 for step in (grid.fine, grid.coarse))
    assert Fraction(grid.reach) % Fraction(grid.coarse) == Fraction(grid.coarse) % Fraction(grid.fine) == 0
    assert reach <= grid.reach <= reach + grid.coarse
    assert Fraction(grid.reach) + 2 * Fraction(grid.bound) <= Fraction(grid.fine) * 2**53, "whole numbers add exactly"
    assert grid.coarse == grid.fine or scale / 128 < grid.coarse <= scale / 64


def test_nonsense_is_refused() -> None:
    for case in ((0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, math.nan), (1.0, 1e308, 1e308)):
        with refused():
            Grid.of(*case)


@pytest.mark.parametrize("encoder", [one for cls in registered(Encoder).values() for one in cls.examples()], ids=repr)
def test_rounded_rows_stay_in_the_image_and_their_sum_is_exact_in_any_order(encoder: Encoder) -> None:
    if encoder.micro_batch > 1:
        encoder = encoder.replace(micro_batch=1)
    dim = encoder.known_dim
    rows = torch.cat([ordinary_rows(200, dim, seed=3), *(rows.double() for _, rows in adversarial_rows(dim))])
    grid = Grid.of(1.0, bound=len(rows) * encoder.image.norm, reach=len(rows))
    encoded = encoder.encode(rows)
    rounded = grid.rows(encoded)
    assert bool((rounded.abs() <= encoded.abs()).all())
    assert bool(((rounded - encoded).abs() < grid.fine).all())
    exact = [sum(Fraction(value) for value in column) for column in rounded.T.tolist()]
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(rows)))
    for total in (rounded.sum(0), rounded[order].sum(0), sum(part.sum(0) for part in rounded[order].split(7))):
        assert [Fraction(value) for value in total.tolist()] == exact


@pytest.mark.parametrize(("scale", "bound", "reach"), CASES)
def test_a_release_is_the_ideal_one_rounded(scale: float, bound: float, reach: float) -> None:
    """Against fractions: the sum of total and noise without any rounding, cut off at the reach, in its nearest cell."""
    grid, rng = Grid.of(scale, bound, reach), np.random.default_rng(0)
    totals = grid.rows(torch.from_numpy(rng.uniform(-bound, bound, 300)))
    noise = torch.from_numpy(scale * rng.standard_cauchy(300) * 10 ** rng.uniform(-3, 3, 300))
    noise[:4] = torch.tensor([1e300, -1e300, math.inf, -math.inf])
    found = grid.noised(totals, noise)
    for total, drawn, value in zip(totals.tolist(), noise.tolist(), found.tolist(), strict=True):
        assert Fraction(value) % Fraction(grid.coarse) == 0
        assert abs(value) <= grid.reach
        if math.isinf(drawn):
            assert value == math.copysign(grid.reach, drawn)
            continue
        ideal = min(max(Fraction(total) + Fraction(drawn), -Fraction(grid.reach)), Fraction(grid.reach))
        assert abs(Fraction(value) - ideal) <= Fraction(grid.coarse) / 2 + Fraction(grid.fine) / 2


def test_every_cell_can_come_from_every_sum() -> None:
    grid = Grid.of(1.0, bound=4.0, reach=4.0)
    cells = torch.arange(-256, 257, dtype=torch.float64) * grid.coarse
    for total in grid.rows(torch.tensor([0.0, 0.1, -0.7, math.pi, 4.0, -4.0]).double()).tolist():
        assert torch.equal(grid.noised(torch.full_like(cells, total), cells - total), cells)
