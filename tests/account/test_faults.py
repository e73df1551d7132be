"""Faults that the checks must catch: each is planted, and the check, which passes elsewhere, must fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from noisette import Gaussian, Mechanism, Noise, StudentT
from noisette.account import moments, pld, rdp
from noisette.encode import Encoder, Image
from noisette.profiles import HalfNormal
from tests.account import checks

Plant = Callable[[pytest.MonkeyPatch], None]


def half_rate(patch: pytest.MonkeyPatch) -> None:
    for name in ("removal", "addition"):
        original = getattr(pld, name)
        patch.setattr(pld, name, lambda curve, rate, original=original: original(curve, rate / 2))
    one_step = rdp._one_step
    patch.setattr(rdp, "_one_step", lambda mechanism: one_step(mechanism.replace(rate=mechanism.rate / 2)))


def a_step_less(patch: pytest.MonkeyPatch) -> None:
    compose, renyi = pld.compose, rdp.renyi
    patch.setattr(pld, "compose", lambda parts, counts: compose(parts, counts - 1))
    patch.setattr(rdp, "renyi", lambda run: renyi(tuple(m.replace(steps=m.steps - 1) for m in run)))


def wrong_df(patch: pytest.MonkeyPatch) -> None:
    curve, products = pld.step_curve, rdp._products

    def wrong(noise: Noise) -> Noise:
        return noise.replace(df=30) if isinstance(noise, StudentT) else noise

    patch.setattr(pld, "step_curve", lambda encoder, noise: curve(encoder, wrong(noise)))
    patch.setattr(rdp, "_products", lambda encoder, noise: products(encoder, wrong(noise)))


def worst_epsilon(patch: pytest.MonkeyPatch) -> None:
    """The profile of the largest epsilon stands for all, at every order."""
    products, one_step = rdp._products, rdp._one_step

    def fault(mechanism: Mechanism) -> np.ndarray:
        rows = products(mechanism.encoder, mechanism.noise)
        costs = []
        for row in rows:
            patch.setattr(rdp, "_products", lambda encoder, noise, row=row: row[None])
            costs.append(one_step(mechanism))
        patch.setattr(rdp, "_products", products)
        return max(costs, key=lambda cost: rdp.epsilon_tighter(mechanism.steps * cost, 1e-5))

    patch.setattr(rdp, "_one_step", fault)


def clamp(patch: pytest.MonkeyPatch) -> None:
    second = moments._second
    patch.setattr(moments, "_second", lambda x: second(np.minimum(x, 30.0)))


def negative_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rdp, "renyi", lambda run: sum(m.steps * rdp._one_step(m) for m in run))


def longer_profile(patch: pytest.MonkeyPatch) -> None:
    build = HalfNormal.build
    patch.setattr(HalfNormal, "build", lambda self, dim: tuple(block.scaled(1.05) for block in build(self, dim)))


def shorter_profile(patch: pytest.MonkeyPatch) -> None:
    build = HalfNormal.build
    patch.setattr(HalfNormal, "build", lambda self, dim: tuple(block.scaled(0.95) for block in build(self, dim)))


def micro_batch_as_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Encoder, "image", property(lambda self: self._single_image))


def twice_the_profile(patch: pytest.MonkeyPatch) -> None:
    """2 psi, rank by rank, which is not enough."""
    patch.setattr(
        Image, "widened", lambda self: Image(2 * self.norm, tuple(block.scaled(2.0) for block in self.profiles))
    )


def removal_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pld, "addition", pld.removal)


def addition_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pld, "removal", pld.addition)


CAUGHT: tuple[tuple[Plant, Callable[[], None]], ...] = (
    (half_rate, checks.check_gaussian_reference),
    (half_rate, checks.check_renyi_reference),
    (half_rate, checks.check_paper_figures),
    (a_step_less, checks.check_few_steps),
    (a_step_less, checks.check_renyi_reference),
    (wrong_df, checks.check_student_reference),
    (wrong_df, checks.check_student_three),
    (wrong_df, checks.check_paper_student),
    (clamp, checks.check_large_moment),
    (longer_profile, checks.check_student_reference),
    (shorter_profile, checks.check_student_reference),
    (micro_batch_as_one, checks.check_micro_batches),
    (twice_the_profile, checks.check_micro_batches),
    (removal_only, checks.check_both_directions),
    (addition_only, checks.check_both_directions),
    (addition_only, checks.check_gaussian_reference),
)


@pytest.mark.parametrize(("plant", "check"), CAUGHT, ids=[f"{p.__name__}-{c.__name__}" for p, c in CAUGHT])
def test_caught(plant: Plant, check: Callable[[], None], planting: pytest.MonkeyPatch) -> None:
    plant(planting)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.usefixtures("pair")
def test_the_worst_profile_is_taken_at_every_order(planting: pytest.MonkeyPatch) -> None:
    checks.check_worst_profile_of_each_order()
    worst_epsilon(planting)
    with pytest.raises(AssertionError):
        checks.check_worst_profile_of_each_order()


@pytest.mark.parametrize("value", [-1e-9, np.nan])
def test_a_negative_or_undefined_divergence_is_refused(value: float, planting: pytest.MonkeyPatch) -> None:
    planting.setattr(rdp, "_one_step", lambda mechanism: np.where(rdp.ORDERS == 7, value, 0.1))
    checks.check_negative_divergence_is_refused()
    negative_accepted(planting)
    with pytest.raises(AssertionError):
        checks.check_negative_divergence_is_refused()


def test_one_percent_of_noise_is_seen(planting: pytest.MonkeyPatch) -> None:
    """How sharp the Gaussian check is: a noise of 1% more than is accounted already fails it."""
    curve = pld.step_curve
    planting.setattr(pld, "step_curve", lambda encoder, noise: curve(encoder, Gaussian(1.01 * noise.known_scale)))
    with pytest.raises(AssertionError):
        checks.check_gaussian_reference()
