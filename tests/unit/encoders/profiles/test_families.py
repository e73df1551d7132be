"""Each family: its shape is the one it names, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from noisette.encoders.profiles import Blocks, Empirical, HalfNormal, PaperGaussian, Power, Quantiles, Tails
from noisette.errors import InvalidInput
from noisette.noise import Laplace, StudentT
from tests.support.helpers import by_rank, ordinary_rows, refused


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize(
    ("family", "law"),
    [
        (HalfNormal(), stats.norm()),
        (Quantiles(law=Laplace()), stats.laplace()),
        (Quantiles(law=StudentT(df=3)), stats.t(3)),
    ],
    ids=["half-normal", "laplace", "student"],
)
def test_looks_like_sorted_draws(family: object, law: object) -> None:
    """The profile is the expected shape of sorted magnitudes of its law."""
    ranks = (np.arange(2000) + 0.5) / 2000
    quantiles = law.ppf((1 + ranks) / 2)
    (block,) = family.build(2000)
    assert cosine(by_rank(block)[0], quantiles) > 0.99


def test_power() -> None:
    (block,) = Power(exponent=0.5, levels=200).build(200)
    assert cosine(by_rank(block)[0], np.arange(200, 0, -1.0) ** -0.5) > 1 - 1e-12
    (coarse,) = Power(exponent=1.5).build(5000)
    assert cosine(by_rank(coarse)[0], np.arange(5000, 0, -1.0) ** -1.5) > 0.99


def test_tails_range_from_dense_to_peaky() -> None:
    (block,) = Tails().build(1000)
    peak = block.levels[:, -1]
    assert np.all(np.diff(peak) > 0), "ever peakier"


def test_papers_profiles() -> None:
    """n sorted Gaussian samples, small magnitudes zero, unit norm: the same for a seed, whatever torch's seed is."""
    torch.manual_seed(0)
    (first,) = PaperGaussian(n=5).build(3000)
    torch.manual_seed(1)
    (again,) = PaperGaussian(n=5).build(3000)
    (other,) = PaperGaussian(n=5, seed=1).build(3000)
    assert np.array_equal(first.levels, again.levels)
    assert not np.array_equal(first.levels, other.levels)
    np.testing.assert_allclose(first.norms, 1, rtol=1e-9)
    raw = first.levels * math.sqrt(3000)
    for row in raw:
        assert stats.kstest(row, stats.halfnorm.cdf).pvalue > 1e-6
    (sparse,) = PaperGaussian(n=5, threshold=0.5).build(3000)
    assert 0.33 < (sparse.levels == 0).mean() < 0.43
    with refused(InvalidInput, "memory"):
        PaperGaussian(n=1000).build(10_000_000)


def test_empirical_from_gradients() -> None:
    rows = ordinary_rows(64, 400, seed=1)
    family = Empirical.from_gradients(rows, levels=30)
    (block,) = family.build(400)
    ascending = np.sort(np.abs(rows.numpy()), axis=1)
    mean = (ascending / np.linalg.norm(ascending, axis=1, keepdims=True)).mean(axis=0)
    assert cosine(by_rank(block)[0], mean) > 0.99
    broken = torch.cat([rows, torch.full((2, 400), torch.nan, dtype=torch.float64), torch.zeros(1, 400)])
    assert Empirical.from_gradients(broken, levels=30) == family
    with refused(InvalidInput, "finite and non-zero"):
        Empirical.from_gradients(torch.zeros(3, 5))
    with refused(InvalidInput, "dimensions"):
        family.build(401)


def test_blocks_share_the_norm() -> None:
    first, second = Blocks(dims=(30, 20), shares=(0.5, 0.25)).build(50)
    assert first.norms.max() == pytest.approx(math.sqrt(0.5), rel=1e-6)
    assert second.norms.max() == pytest.approx(0.5, rel=1e-6)
    first, second = Blocks(dims=(30, 20)).build(50)
    assert first.norms.max() == pytest.approx(math.sqrt(0.6), rel=1e-6)
    with refused(InvalidInput, "blocks hold"):
        Blocks(dims=(30, 20)).build(51)
    tenths = Blocks(dims=(5,) * 10, shares=(0.1,) * 10).build(50)  # 10 * 0.1 is above 1 in exact arithmetic
    assert len(tenths) == 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: HalfNormal(levels=0),
        lambda: HalfNormal(levels=2.5),
        lambda: Power(exponent=0),
        lambda: Power(exponent=math.nan),
        lambda: Tails(shapes=()),
        lambda: Tails(shapes=2.0),
        lambda: Tails(shapes=(1.0, -1.0)),
        lambda: Quantiles(law=3),
        lambda: PaperGaussian(n=0),
        lambda: PaperGaussian(seed=-1),
        lambda: PaperGaussian(threshold=math.nan),
        lambda: Empirical(levels=(0.3, 0.1), counts=(1, 1)),
        lambda: Empirical(levels=(0.6, 0.9), counts=(1, 1)),
        lambda: Empirical(levels=(0.1, math.nan), counts=(1, 1)),
        lambda: Empirical(levels=(-0.1, 0.1), counts=(1, 1)),
        lambda: Empirical(levels=(0.1,), counts=(1, 1)),
        lambda: Empirical(levels=(0.1,), counts=(0,)),
        lambda: Empirical(levels=(), counts=()),
        lambda: Empirical(levels=0.1, counts=(50,)),
        lambda: Blocks(dims=()),
        lambda: Blocks(dims=50),
        lambda: Blocks(dims=(10, 0)),
        lambda: Blocks(dims=(10, 10), shares=(0.5,)),
        lambda: Blocks(dims=(10, 10), shares=(0.6, 0.6)),
        lambda: Blocks(dims=(10, 10), shares=(0.5, -0.1)),
        lambda: Blocks(dims=(10,), profiles=None),
        lambda: Empirical(levels=(0.0,), counts=(50,)),
        lambda: Empirical(levels=(0.0, 0.0), counts=(20, 30)),
        lambda: Empirical(levels=(0.1,), counts=(10**30,)),
        lambda: HalfNormal(levels=10**10),
        lambda: Power(levels=10**10),
        lambda: Power().build(10**11),
        lambda: PaperGaussian(n=10**7, levels=500_000).build(10**10),
        lambda: PaperGaussian(n=10**7).build(10**10),
    ],
)
def test_bad_families(make: Callable[[], object]) -> None:
    with refused(InvalidInput):
        make()


def test_rounded_profiles_have_the_law_of_sampled_ones() -> None:
    """300 of each, block by block: means agree to 5 standard errors, spreads to 25%."""
    (rounded,) = PaperGaussian(n=300, levels=24).build(3000)
    (full,) = PaperGaussian(n=300, seed=1).build(3000)
    squares = np.add.reduceat(full.levels**2, np.cumsum(rounded.counts) - rounded.counts, axis=1) / rounded.counts
    expected = np.sqrt(squares)
    wide = rounded.counts >= 20  # few ranks are not even within a block, where a rounded profile takes them as such
    gap = np.abs(rounded.levels.mean(0) - expected.mean(0)) / (expected.std(0) * (2 / 300) ** 0.5)
    assert gap[wide].max() < 5
    assert np.allclose(rounded.levels.std(0)[wide], expected.std(0)[wide], rtol=0.25)
    assert (rounded.norms <= 1 + 1e-9).all()
