"""Faults of the accountants: an epsilon that is too small."""

from __future__ import annotations

import numpy as np
import pytest

from noisette import Mechanism, Noise
from noisette.accounting import _renyi_moments, account, groups, pld, rdp
from noisette.encoders import Encoder, Image, Ranked
from noisette.encoders.profiles import HalfNormal, ProfileSet
from noisette.noise import Gaussian, ScipyNoise, StudentT
from tests.conformance import test_encoders, test_profiles
from tests.conformance.encoder_checks import check_micro_batches
from tests.faults.audited import PAIRS, check_audit
from tests.faults.table import by, fault
from tests.support import accounting_checks
from tests.unit.accounting import test_account, test_groups
from tests.unit.noise import test_base, test_scipy_law

RANKED = Ranked(dim=50)


@fault(
    "accountant with q/2",
    by(accounting_checks.check_gaussian_reference),
    by(accounting_checks.check_renyi_reference),
    by(accounting_checks.check_paper_figures),
)
def half_rate(patch: pytest.MonkeyPatch) -> None:
    for name in ("removal", "addition"):
        original = getattr(pld, name)
        patch.setattr(pld, name, lambda curve, rate, original=original: original(curve, rate / 2))
    one_step = rdp._one_step
    patch.setattr(rdp, "_one_step", lambda mechanism: one_step(mechanism.replace(rate=mechanism.rate / 2)))


@fault("accountant with T-1", by(accounting_checks.check_few_steps), by(accounting_checks.check_renyi_reference))
def a_step_less(patch: pytest.MonkeyPatch) -> None:
    compose, renyi = pld.compose, rdp.renyi
    patch.setattr(pld, "compose", lambda parts, counts: compose(parts, counts - 1))
    patch.setattr(rdp, "renyi", lambda run: renyi(tuple(m.replace(steps=m.steps - 1) for m in run)))


@fault(
    "accountant with wrong nu",
    by(accounting_checks.check_student_reference),
    by(accounting_checks.check_student_three),
    by(accounting_checks.check_paper_student, heavy=True),
)
def wrong_df(patch: pytest.MonkeyPatch) -> None:
    curve, products = pld.step_curve, rdp._products

    def wrong(noise: Noise) -> Noise:
        return noise.replace(df=30) if isinstance(noise, StudentT) else noise

    patch.setattr(pld, "step_curve", lambda encoder, noise: curve(encoder, wrong(noise)))
    patch.setattr(rdp, "_products", lambda encoder, noise: products(encoder, wrong(noise)))


@fault("noise accounted as 1% more than it is", by(accounting_checks.check_gaussian_reference))
def one_percent(patch: pytest.MonkeyPatch) -> None:
    """How sharp the check is."""
    curve = pld.step_curve
    patch.setattr(pld, "step_curve", lambda encoder, noise: curve(encoder, Gaussian(1.01 * noise.known_scale)))


@fault("max of epsilon instead of per-order max", by(accounting_checks.check_worst_profile_of_each_order))
def worst_epsilon(patch: pytest.MonkeyPatch) -> None:
    """The profile of the largest epsilon stands for all, at every order."""
    products, one_step = rdp._products, rdp._one_step

    def wrong(mechanism: Mechanism) -> np.ndarray:
        rows = products(mechanism.encoder, mechanism.noise)
        costs = []
        for row in rows:
            patch.setattr(rdp, "_products", lambda encoder, noise, row=row: row[None])
            costs.append(one_step(mechanism))
        patch.setattr(rdp, "_products", products)
        return max(costs, key=lambda cost: rdp.epsilon_tighter(mechanism.steps * cost, 1e-5))

    patch.setattr(rdp, "_one_step", wrong)


@fault("exponent clamp", by(accounting_checks.check_large_moment))
def clamp(patch: pytest.MonkeyPatch) -> None:
    second = _renyi_moments._second
    patch.setattr(_renyi_moments, "_second", lambda x: second(np.minimum(x, 30.0)))


@fault(
    "negative RDP accepted",
    by(accounting_checks.check_bad_divergence_is_refused, value=-1e-9),
    by(accounting_checks.check_bad_divergence_is_refused, value=np.nan),
)
def negative_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rdp, "renyi", lambda run: sum(m.steps * rdp._one_step(m) for m in run))


@fault(
    "profile not normalised",
    *(by(test_profiles.test_family, family=family, says="too long") for family in test_profiles.FAMILIES[-2:]),
)
def longer_by_a_hair(patch: pytest.MonkeyPatch) -> None:
    """One part in 2^40 is enough to be seen."""
    original = ProfileSet.normalized.__func__

    def too_long(cls: type[ProfileSet], *arguments: object) -> ProfileSet:
        built = original(cls, *arguments)
        return ProfileSet(built.levels * (1 + 2.0**-40), built.counts)

    patch.setattr(ProfileSet, "normalized", classmethod(too_long))


def _profile_times(factor: float, patch: pytest.MonkeyPatch) -> None:
    build = HalfNormal.build
    patch.setattr(HalfNormal, "build", lambda self, dim: tuple(block.scaled(factor) for block in build(self, dim)))


@fault("profile not normalised: 5% too long", by(accounting_checks.check_student_reference))
def longer_profile(patch: pytest.MonkeyPatch) -> None:
    _profile_times(1.05, patch)


@fault("profile not normalised: 5% too short", by(accounting_checks.check_student_reference))
def shorter_profile(patch: pytest.MonkeyPatch) -> None:
    _profile_times(0.95, patch)


@fault(
    "micro-batch 2 accounted as 1",
    by(accounting_checks.check_micro_batches),
    by(test_encoders.test_encoder, encoder=RANKED, check=check_micro_batches),
    by(check_audit, mechanism=PAIRS, heavy=True),
)
def micro_batch_as_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Encoder, "image", property(lambda self: self._image_of_one))


@fault(
    "micro-batch 2 accounted as 2 psi, rank by rank",
    by(accounting_checks.check_micro_batches),
    by(test_encoders.test_encoder, encoder=RANKED, check=check_micro_batches),
)
def twice_the_profile(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Image,
        "for_microbatches",
        lambda self: Image(2 * self.norm, tuple(block.scaled(2.0) for block in self.profiles)),
    )


@fault("one direction only: removal", by(accounting_checks.check_both_directions))
def removal_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pld, "addition", pld.removal)


@fault(
    "one direction only: addition",
    by(accounting_checks.check_both_directions),
    by(accounting_checks.check_gaussian_reference),
)
def addition_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pld, "removal", pld.addition)


@fault(
    "a hockey stick 3e-12 too small",
    by(test_base.test_hockey_stick_is_an_upper_bound_and_tight, noise=StudentT(9, 1.0), says="too small"),
)
def short_hockey_stick(patch: pytest.MonkeyPatch) -> None:
    original = StudentT.hockey_stick
    patch.setattr(StudentT, "hockey_stick", lambda self, eps, tau: original(self, eps, tau) * (1 - 3e-12))


@fault("an estimate called a bound", by(test_account.test_estimates_say_so))
def certified_without_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScipyNoise, "certified", True)


@fault(
    "a law without a known worst case accepted",
    by(test_scipy_law.test_refused_with_the_reason, name="skewnorm", shapes=(3.0,), reason="not symmetric"),
    by(test_scipy_law.test_refused_with_the_reason, name="dweibull", shapes=(2.0,), reason="not unimodal"),
)
def any_law(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScipyNoise, "_check", lambda self: None)


@fault(
    "a person with k rows counted as one with k - 1",
    by(test_groups.test_of_gaussian_noise_it_is_that_of_a_longer_shift, scale=2.0, size=5),
)
def a_row_less(patch: pytest.MonkeyPatch) -> None:
    powers = groups._powers
    patch.setattr(groups, "_powers", lambda plain, size: powers(plain, size - 1))


@fault("delta of 1/N accepted", by(test_account.test_delta_must_be_below_one_in_n))
def any_delta(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(account, "check_delta", lambda delta, examples=None, of="example": float(delta))
