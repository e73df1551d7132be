"""P11 on products: what dominates what. Profiles, envelopes, pointwise maxima, levels rounded up."""

from __future__ import annotations

import numpy as np
import pytest

from noisette import Mechanism, Noise
from noisette.accounting import guarantee
from noisette.accounting._step_divergence import levels_and_counts, step_curve
from noisette.accounting.pld import privacy_loss
from noisette.encoders import Image, Ranked
from noisette.encoders.profiles import Blocks, Empirical, HalfNormal, PaperGaussian, ProfileSet, Tails
from noisette.noise import Cauchy, Gaussian, Laplace, Logistic, StudentT
from tests.support.accounting_references import DELTA, RATE, forget

EPS = np.array([0.0, 0.1, 0.3, 1.0, 2.0, 4.0])
NOISES = (Laplace(0.6), Cauchy(0.4), StudentT(3, 0.5), Logistic(0.3))


def encoder(values: np.ndarray, radius: float = 1.0) -> Ranked:
    """An encoder whose only profile has these magnitudes."""
    levels, counts = np.unique(values / radius, return_counts=True)
    return Ranked(
        dim=len(values), profiles=Empirical(tuple(levels.tolist()), tuple(counts.tolist())), radius=float(radius)
    )


def product_curve(noise: Noise, values: tuple[float, float], eps: float) -> float:
    """H of two coordinates by plain summation on a fine grid of the plane."""
    t = np.linspace(-4.2, 4.2, 1401)
    x, w = np.sinh(t) * noise.known_scale, np.cosh(t) * noise.known_scale * (t[1] - t[0])
    p, q = ([np.exp(noise.log_prob(x - shift)) for shift in s] for s in (values, (0.0, 0.0)))
    gain = np.multiply.outer(p[0], p[1]) - np.exp(eps) * np.multiply.outer(q[0], q[1])
    return float(w @ np.maximum(gain, 0) @ w)


@pytest.mark.parametrize("noise", [StudentT(3, 0.5), Logistic(0.3)], ids=repr)
def test_two_coordinates_against_a_double_sum(noise: Noise) -> None:
    values = (0.3, 0.8)
    curve = step_curve(encoder(np.array(values)), noise)
    for eps in (0.0, 0.5, 1.5):
        truth = product_curve(noise, values, eps)
        assert truth * (1 - 2e-4) <= float(curve.forward(np.array(eps))) <= truth * 1.002


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_a_smaller_shift_has_a_lower_curve(noise: Noise) -> None:
    """P11: random profiles psi and random |u| <= psi, in random order: step by step and sampled and composed."""
    rng = np.random.default_rng(11)
    closest = np.inf
    for trial in range(3):
        psi = np.sort(rng.dirichlet(np.full(4, 0.4)) ** 0.5 * 0.99).repeat(2) / np.sqrt(2)
        u = rng.permutation(psi) if trial == 0 else psi * rng.uniform(0, 1, 8) ** rng.choice([0.05, 1.0], 8)
        worst, actual = step_curve(encoder(psi), noise), step_curve(encoder(np.sort(u)), noise)
        # both are upper bounds, each on a lattice of its own
        assert np.all(actual.forward(EPS) <= worst.forward(EPS) * 1.002 + 1e-12)
        closest = min(closest, float(worst.forward(EPS)[0] - actual.forward(EPS)[0]))
        composed = [privacy_loss((Mechanism(encoder(v), noise, 0.2, 5),)) for v in (np.sort(u), psi)]
        small, large = (loss.delta(EPS) for loss in composed)
        assert np.all(small <= large * 1.003 + 1e-12)
    assert closest < 0.02, "no case came near equality, so that the test saw nothing"


@pytest.mark.parametrize("noise", [Laplace(0.6), StudentT(3, 0.5)], ids=repr)
def test_envelope_and_maximum_dominate_each_profile(noise: Noise) -> None:
    family = Tails(shapes=(2.0, 0.7, 0.3), levels=5)
    together = step_curve(Ranked(dim=40, profiles=family), noise)
    assert together.basis == "pointwise maximum over profiles"
    block = family.build(40)[0]
    envelope = block.envelope()
    length = 1.001 * float(envelope.norms.max())
    over = step_curve(encoder(np.repeat(envelope.levels[0], envelope.counts), radius=length), noise)
    single = [step_curve(Ranked(dim=40, profiles=Tails(shapes=(s,), levels=5)), noise) for s in family.shapes]
    assert {curve.basis for curve in single} == {"profile"}
    each = np.max([curve.forward(EPS) for curve in single], axis=0)
    np.testing.assert_allclose(together.forward(EPS), each, rtol=2e-3, atol=1e-12)
    assert np.all(together.forward(EPS) >= each * (1 - 2e-3))
    assert np.all(over.forward(EPS) >= together.forward(EPS) * (1 - 1e-3))
    assert over.forward(EPS)[0] > together.forward(EPS)[0] * 1.01, "and the maximum is the tighter one"


def ranked_values(levels: np.ndarray, counts: np.ndarray, dim: int) -> np.ndarray:
    values = np.repeat(levels, counts)
    return np.concatenate([np.zeros(dim - len(values)), values])


@pytest.mark.parametrize("most", [2, 7, 40, 512])
def test_levels_are_rounded_up(most: int) -> None:
    """Rank by rank, what is accounted is at least the profile, and no more levels than asked for."""
    block = PaperGaussian(n=5, threshold=0.2).build(300)[0]
    levels, counts, basis = levels_and_counts(Image(1.0, (block,)), most)
    assert basis == "pointwise maximum over profiles"
    assert len(levels) <= most + 1
    assert 1 <= len(counts) <= 5  # profiles that are rounded to the same levels are one row
    assert counts.shape[1] == len(levels)
    accounted = np.array([ranked_values(levels, row, 300) for row in counts])
    assert all(np.all(accounted >= row, axis=1).any() for row in block.levels)
    assert np.all(np.linalg.norm(accounted, axis=1) <= {2: 4.0, 7: 1.6, 40: 1.1, 512: 1.02}[most])


def test_rounded_levels_have_a_higher_curve() -> None:
    noise, block = StudentT(3, 0.5), HalfNormal(levels=30).build(60)[0]
    exact, counts, _ = levels_and_counts(Image(1.0, (block,)))
    np.testing.assert_array_equal(np.repeat(exact, counts[0]), np.repeat(block.levels[0], block.counts))
    rough, rough_counts, _ = levels_and_counts(Image(1.0, (block,)), 4)
    fine = step_curve(encoder(np.repeat(exact, counts[0])), noise)
    coarse = step_curve(encoder(np.repeat(rough, rough_counts[0]), radius=2.0), noise)
    assert np.all(coarse.forward(EPS) > fine.forward(EPS))


def test_blocks_combine() -> None:
    """Every combination of block profiles is a row; of too many, each block's envelope."""
    family = Blocks(dims=(30, 20), profiles=Tails(shapes=(2.0, 0.5, 0.3), levels=4))
    blocks = family.build(50)
    levels, counts, basis = levels_and_counts(Image(1.0, blocks))
    assert basis == "pointwise maximum over profiles"
    assert len(counts) == 9
    lengths = np.sqrt(counts @ levels**2)
    expected = np.sort(np.hypot.outer(blocks[0].norms, blocks[1].norms).ravel())
    np.testing.assert_allclose(np.sort(lengths), expected, rtol=1e-9)
    many = Blocks(dims=(10,) * 8, profiles=Tails(shapes=(2.0, 0.5, 0.3), levels=4)).build(80)
    levels, counts, basis = levels_and_counts(Image(1.0, many))
    assert basis == "rank-wise envelope of each block's profiles"
    assert len(counts) == 1
    total = sum(float(block.envelope().norms[0]) ** 2 for block in many)
    assert float(counts[0] @ levels**2) == pytest.approx(total, rel=1e-9)


def test_zero_levels_cost_nothing() -> None:
    bare = step_curve(encoder(np.array([0.3, 0.6])), Laplace(1.0))
    padded = step_curve(encoder(np.array([0.0] * 50 + [0.3, 0.6])), Laplace(1.0))
    np.testing.assert_allclose(padded.forward(EPS), bare.forward(EPS), rtol=1e-9, atol=1e-12)


def test_gaussian_noise_sees_the_norm_alone() -> None:
    noise = Gaussian(0.9)
    curves = [step_curve(enc, noise) for enc in (Ranked(dim=1), Ranked(dim=500), Ranked(dim=70, profiles=Tails()))]
    for curve in curves:
        assert curve.basis == "L2 norm"
        np.testing.assert_allclose(curve.forward(EPS), noise.hockey_stick(EPS, 1.0), rtol=1e-9)


def test_the_product_pipeline_finds_the_gaussian() -> None:
    """Forced through levels, lattices and products, a Gaussian law must come out as one Gaussian of the whole norm."""
    noise = PlainGaussian(0.9)
    found = step_curve(Ranked(dim=300), noise)
    truth = noise.hockey_stick(EPS, 1.0)
    assert found.basis == "profile"
    assert np.all(found.forward(EPS) >= truth * (1 - 1e-9))
    np.testing.assert_allclose(found.forward(EPS), truth, rtol=2e-3)


class PlainGaussian(Gaussian):
    """A Gaussian law that does not know of its rotation invariance."""

    rotation_invariant = False


def test_curves_fall_and_are_convex() -> None:
    grid = np.linspace(0, 6, 300)
    for noise in NOISES:
        values = step_curve(Ranked(dim=30), noise).forward(grid)
        assert np.all(np.diff(values) <= 0)
        slopes = np.diff(values) / np.diff(np.exp(grid))
        assert np.all(np.diff(slopes) >= -1e-9), "H is convex in e^eps"
        assert 0 < values[0] < 1


def paper_set(n: int, dim: int) -> tuple[float, float, float]:
    """Epsilons of n sampled profiles, of one half-normal profile, and of the set's envelope."""
    noise, steps = StudentT(9, 1.0), 14_062
    forget()
    sampled = Ranked(dim=dim, profiles=PaperGaussian(n=n))
    envelope = sampled.blocks[0].envelope()
    one = Empirical(tuple((envelope.levels[0] / 1.5).tolist()), (1,) * dim)
    encoders = (sampled, Ranked(dim=dim), Ranked(dim=dim, profiles=one, radius=1.5))
    found = [guarantee(Mechanism(enc, noise, RATE, steps), DELTA).epsilon for enc in encoders]
    forget()
    return found[0], found[1], found[2]


def test_a_few_sampled_profiles_cost_less_than_their_envelope() -> None:
    sampled, _, envelope = paper_set(3, 60)
    assert sampled < envelope * 0.97


@pytest.mark.slow
def test_the_papers_thousand_profiles() -> None:
    """The pointwise maximum is within 1% of one half-normal profile, where the envelope costs about 3%."""
    sampled, half_normal, envelope = paper_set(1000, 26_010)
    assert sampled <= half_normal * 1.01
    assert envelope >= half_normal * 1.02
    assert sampled >= half_normal * 0.999


def test_micro_batches_widen_every_rank() -> None:
    """Differences of two vectors within psi, in random orders: always within the widened image."""
    rng = np.random.default_rng(4)
    block = ProfileSet.normalized([[0.0, 0.5, 1.0, 3.0]], [3, 4, 2, 1])
    wide = Image(1.0, (block,)).for_microbatches()
    bound, psi = (
        np.repeat(wide.profiles[0].levels[0], wide.profiles[0].counts),
        np.repeat(block.levels[0], block.counts),
    )
    for _ in range(300):
        a, b = (rng.permutation(psi) * rng.choice([-1, 1], 10) for _ in range(2))
        assert np.all(np.sort(np.abs(a - b)) <= bound + 1e-15)
