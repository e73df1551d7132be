"""Private means: the noise is what was planned, the bounds hold, and nothing is released before it is paid for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from noisette import Ledger, Mechanism, guarantee
from noisette import private_means as statistics
from noisette._quantization import Grid
from noisette._spec import registered
from noisette.encoders import L2, Ranked, base
from noisette.encoders.profiles import HalfNormal
from noisette.noise import Gaussian, Laplace, Noise
from noisette.private_means import plan_means, private_means
from noisette.random import Generator
from tests.support.helpers import refused

LOWER, UPPER = torch.tensor([0.0, -1.0, 10.0]), torch.tensor([100.0, 1.0, 30.0])


def flat(columns: int, noise: Noise) -> Mechanism:
    """What plan_means makes, with a scale that is given."""
    return Mechanism(Ranked(columns, HalfNormal(levels=1), math.sqrt(columns)), noise, rate=1.0, steps=1)


def rows(count: int = 200) -> torch.Tensor:
    return LOWER + (UPPER - LOWER) * torch.from_numpy(np.random.default_rng(0).random((count, 3)))


def test_a_plan_keeps_its_budget_and_takes_the_least_error() -> None:
    plans = {kind: plan_means(2, 1.0, 1e-5, [kind]) for kind in (Laplace(), Gaussian())}
    for plan in plans.values():
        assert 0.998 <= guarantee(plan, 1e-5).epsilon <= 1.0
        assert (plan.rate, plan.steps) == (1.0, 1)
    best = plan_means(2, 1.0, 1e-5, list(plans))
    assert best == plans[Laplace()]
    assert best.noise.std < 0.6 * plans[Gaussian()].noise.std
    # Laplace noise of scale d on d numbers that each move by at most 1 is (1, 0)-private, and delta gains little
    assert best.noise.known_scale == pytest.approx(2.0, rel=2e-3)


def test_with_many_columns_gaussian_noise_is_taken() -> None:
    assert isinstance(plan_means(200, 1.0, 1e-5, [Laplace(), Gaussian()]).noise, Gaussian)


def test_errors_follow_the_declared_law() -> None:
    """800 errors of each column against the law; Kolmogorov and Smirnov at level 1e-4, seeds fixed."""
    table, mechanism = rows(), flat(3, Laplace(scale=3.0))
    true, unit = table.mean(dim=0), (UPPER - LOWER).double() / 2
    found = [private_means(table, LOWER, UPPER, mechanism, seed=seed) for seed in range(800)]
    errors = torch.stack([(one.values - true) / unit for one in found]) * len(table)
    for column in errors.T:
        assert stats.kstest(column.numpy(), stats.laplace(scale=3.0).cdf).pvalue > 1e-4
    assert torch.allclose(found[0].std, math.sqrt(2) * 3.0 / 200 * unit)
    assert found[0].flags == found[0].guarantee(1e-5).flags == ("reproducible",)


def test_without_a_seed_no_two_are_alike() -> None:
    first, second = (private_means(rows(), LOWER, UPPER, flat(3, Gaussian(scale=1.0))) for _ in range(2))
    assert not torch.equal(first.values, second.values)
    assert first.flags == ()


@pytest.mark.parametrize("value", [1e30, -1e30, torch.inf, torch.nan])
def test_one_row_moves_a_sum_by_one_half_width_at_most(value: float) -> None:
    table, mechanism = rows(), flat(3, Gaussian(scale=1e-9))
    more = torch.cat([table, torch.full((1, 3), value, dtype=table.dtype)])
    unit, middle = (UPPER - LOWER).double() / 2, (UPPER + LOWER).double() / 2
    sums = [
        (private_means(one, LOWER, UPPER, mechanism, seed=1).values - middle) / unit * len(one) for one in (table, more)
    ]
    moved = (sums[1] - sums[0]).abs()
    expected = 1.0 if math.isfinite(value) else 0.0
    assert torch.allclose(moved, torch.full((3,), expected, dtype=torch.float64), atol=1e-6)


def test_means_stay_within_their_bounds() -> None:
    found = private_means(rows(5), LOWER, UPPER, flat(3, Gaussian(scale=1e4)), seed=0).values
    assert bool(((found >= LOWER) & (found <= UPPER)).all())
    assert bool(((found == LOWER) | (found == UPPER)).any()), "the noise was large enough to be cut off"


# -- what the bits of a release tell -----------------------------------------------------------------------------------


def _could_be(values: npt.NDArray[np.float64], total: float) -> npt.NDArray[np.bool_]:
    """Whether floats `values` (n,) can be `total` plus some float: all that an attacker needs to know of rounding."""
    below = above = values - total
    found = np.zeros(values.shape, dtype=bool)
    for _ in range(3):
        found |= (total + below == values) | (total + above == values)
        below, above = np.nextafter(below, -np.inf), np.nextafter(above, np.inf)
    return found


def _proofs(noise: Noise, count: int) -> tuple[float, float]:
    """The share of releases that prove a person absent, and present, to one who knows the 1,023 others.

    One of the others is at 0.3 and the rest are in the middle, where a row counts nothing. The person is at 0.7.
    """
    mechanism, bounds = flat(1, noise), (torch.tensor([-1.0]), torch.tensor([1.0]))
    others = torch.zeros(1024, 1, dtype=torch.float64)
    others[0] = 0.3
    totals, found = [], []
    for value in (0.0, 0.7):
        table = others.clone()
        table[1] = value
        totals.append(float(mechanism.encoder.encode(table).sum()))
        found.append([float(private_means(table, *bounds, mechanism, seed=seed).values) for seed in range(count)])
    absent, present = (np.array(values) * 1024 for values in found)  # a power of two: nothing is rounded
    return float(np.mean(~_could_be(absent, totals[1]))), float(np.mean(~_could_be(present, totals[0])))


@pytest.mark.parametrize("law", list(registered(Noise).values()), ids=lambda law: law.__name__)
def test_no_release_proves_anybody_absent_or_present(law: type[Noise], monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured without the grid, over all laws: 19 to 37% of releases prove absence, 5 to 9% presence."""
    noise = law.examples()[0].replace(scale=1.0)
    assert _proofs(noise, 150) == (0.0, 0.0)
    monkeypatch.setattr(base, "toward_zero", lambda rows, step: rows)
    monkeypatch.setattr(Grid, "add_noise", lambda self, total, noise: total + noise)
    absent, present = _proofs(noise, 150)
    assert absent > 0.1, "the attack works where the grid is left out"
    assert present > 0.01


def test_releases_lie_on_the_grid_and_lose_no_accuracy() -> None:
    """Errors of 800 releases on the grid and off it, of the same noise: their variances differ by less than 0.1%."""
    table, noise = torch.zeros(1024, 1, dtype=torch.float64), Laplace(scale=1.0)
    bounds = torch.tensor([-1.0]), torch.tensor([1.0])
    found = [float(private_means(table, *bounds, flat(1, noise), seed=seed).values) for seed in range(800)]
    sums = np.array(found) * 1024
    assert np.array_equal(sums * 64, np.round(sums * 64))
    raw = np.array([noise.sample((1,), Generator(seed, purpose="noise")).item() for seed in range(800)])
    assert np.abs(sums - raw).max() <= 1 / 128 + 1e-9
    assert np.var(sums) == pytest.approx(np.var(raw), rel=1e-3)


def test_every_ledger_pays_before_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = flat(3, Laplace(scale=3.0))
    with Ledger(tmp_path / "one", data="t") as one, Ledger(tmp_path / "two", data="t") as two:
        private_means(rows(), LOWER, UPPER, mechanism, ledger=one)
        private_means(rows(), LOWER, UPPER, mechanism, ledger=[one, two])
        assert (one.spent(mechanism), two.spent(mechanism)) == (2, 1)

        def fails(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(statistics, "release", fails)
        with pytest.raises(KeyboardInterrupt):
            private_means(rows(), LOWER, UPPER, mechanism, ledger=two)
        assert two.spent(mechanism) == 2
        assert guarantee(two.mechanisms(), 1e-5).epsilon > guarantee(mechanism, 1e-5).epsilon


def test_what_does_not_fit_is_refused() -> None:
    good = flat(3, Laplace(scale=3.0))
    for case in (
        {"mechanism": good.replace(rate=0.5)},  # nothing is sampled, so nothing may be gained by it
        {"mechanism": good.replace(steps=2)},
        {"mechanism": good.replace(encoder=good.encoder.replace(micro_batch=2))},
        {"mechanism": flat(2, Laplace(scale=3.0))},
        {"mechanism": Mechanism(L2(3), Gaussian(), rate=1.0, steps=1)},  # the scale is open
        {"lower": UPPER},
        {"upper": torch.tensor([1.0, torch.inf, 40.0])},
        {"upper": UPPER[:2]},
        {"rows": rows()[:0]},
        {"rows": rows()[0]},
    ):
        with refused():
            private_means(**({"rows": rows(), "lower": LOWER, "upper": UPPER, "mechanism": good} | case))
    with refused(match="no noise to choose"):
        plan_means(3, 1.0, 1e-5, [])
    with refused(match="columns"):
        plan_means(0, 1.0, 1e-5)
