"""The canary goes to the edge of the image, and the steps are those of training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from noisette import Encoder, Generator, Mechanism
from noisette.audit._canary import Separation, in_image, neighbours, releases
from noisette.encoders import Ranked
from noisette.encoders.profiles import Tails
from noisette.noise import Cauchy, Gaussian, Laplace
from noisette.training import PoissonSampler
from tests.support.audited_mechanisms import ENCODERS, FEW, ball
from tests.support.helpers import by_rank


def _claim(encoder: Encoder) -> Mechanism:
    return Mechanism(encoder, Laplace(scale=1.0), rate=0.5, steps=1)


@pytest.mark.parametrize("encoder", ENCODERS, ids=repr)
def test_every_rank_of_a_profile_is_saturated(encoder: Encoder) -> None:
    pair = neighbours(_claim(encoder), Generator(seed=1), flip=True)
    assert not pair.base.any()
    assert torch.equal(pair.with_canary[:-1], pair.without)
    assert {1.0, -1.0} <= set(np.sign(pair.shift).tolist())
    start = 0
    for block in encoder.image.profiles:
        part = np.abs(pair.shift[start : start + block.dim])
        assert any(np.allclose(np.sort(part), psi, rtol=1e-6) for psi in by_rank(block))
        assert not np.all(np.diff(part) >= 0), "ranks are in no order"
        start += block.dim
    assert in_image(pair.shift, encoder.image)
    assert not in_image(1.001 * pair.shift, encoder.image)


def test_one_coordinate_too_large_is_outside() -> None:
    image = Ranked(dim=20, profiles=FEW).image
    inside = by_rank(image.profiles[0])[0]
    smallest = inside.copy()
    smallest[0] = inside[-1]
    assert in_image(inside, image)
    assert np.linalg.norm(smallest / 1.2) < image.norm
    assert not in_image(smallest / 1.2, image)


def test_the_worst_of_several_profiles_is_chosen() -> None:
    encoder = Ranked(dim=50, profiles=Tails())
    pair = neighbours(_claim(encoder), Generator(seed=1), flip=True)
    (block,) = encoder.image.profiles

    def apart(profile: np.ndarray) -> float:
        return float(np.sum(2 * (profile + np.expm1(-profile))))  # of Laplace laws, in closed form

    rows = by_rank(block)
    assert apart(np.abs(pair.shift)) == pytest.approx(max(map(apart, rows)), rel=1e-4)
    assert max(map(apart, rows)) > 1.01 * min(map(apart, rows))


def test_a_micro_batch_is_turned_into_its_opposite() -> None:
    encoder = Ranked(dim=20, profiles=FEW, micro_batch=2)
    pair = neighbours(_claim(encoder), Generator(seed=1), flip=True)
    np.testing.assert_allclose(pair.shift, -2 * pair.base)
    assert in_image(pair.shift, encoder.image)
    assert not in_image(pair.shift, encoder.replace(micro_batch=1).image), "accounted as 1, it must be seen"


def test_the_steps_are_those_of_training() -> None:
    claim = ball(rate=0.5)
    pair = neighbours(claim, Generator(seed=1), flip=True)
    rows = list(releases(claim, pair.with_canary, 20, seed=7))
    sampler = PoissonSampler(len(pair.with_canary), 0.5, Generator(seed=7, purpose="sampling"))
    noise = Generator(seed=7, purpose="noise")
    for row in rows:
        present = len(pair.with_canary) - 1 in sampler.draw()
        expected = present * pair.shift + claim.noise.sample((20,), noise).numpy()
        np.testing.assert_allclose(row, expected, atol=claim.grid.release_quantum / 2 + 1e-9)


def test_making_the_model_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    list(releases(ball(), torch.zeros(2, 20), 2, seed=None))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("ratio", [1e-4, 0.1, 1.0, 5.0, 30.0])
def test_separation_in_closed_form(ratio: float) -> None:
    one, at = np.ones(1, dtype=np.int64), np.array([ratio])
    assert Separation(Gaussian()).of(at, one) == pytest.approx(ratio**2, rel=0.02)
    assert Separation(Laplace()).of(at, one) == pytest.approx(2 * (ratio + np.expm1(-ratio)), rel=0.02)


def test_separation_by_quadrature() -> None:
    def integrand(x: float) -> float:
        a, b = stats.cauchy.pdf(x), stats.cauchy.pdf(x - 3)
        return float((a - b) * np.log(a / b))

    expected = integrate.quad(integrand, -np.inf, np.inf)[0]
    found = Separation(Cauchy()).of(np.array([3.0, 0.0]), np.array([2, 5]))
    assert found == pytest.approx(2 * expected, rel=0.02)


def test_the_scale_for_a_separation() -> None:
    shift = np.array([0.3, -0.4])
    assert Separation(Gaussian()).scale_for(shift, 9.0) == pytest.approx(0.5 / 3, rel=0.01)
