"""Faults of the noise: too little of it, of another law, or noise that somebody can repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from noisette import Generator, Mechanism, Noise, Private, Released
from noisette._spec import registered
from noisette.noise import Gaussian, StudentT
from noisette.training import private_run
from tests.conformance import test_noise
from tests.distributed import test_same_run
from tests.faults.audited import BALL, check_audit
from tests.faults.table import Catcher, by, fault
from tests.promises import test_run_noise
from tests.promises.test_trained_is_accounted import test_trained_is_accounted as trained
from tests.support.child_record import sum_the_noise
from tests.unit import test_random
from tests.unit.denoisers import test_ks
from tests.unit.denoisers.test_ks import KS
from tests.unit.training import test_private_run, test_reading

LAWS = [kind.examples()[0] for kind in registered(Noise).values() if kind.__module__.startswith("noisette.")]
QUICK = [noise for noise in LAWS if type(noise).__name__ not in {"VarianceGamma", "GeneralizedGaussian", "ScipyNoise"}]
"""Laws whose distribution function takes no second for 4e5 draws; the draws of all go through `Noise.sample`."""

Release = Callable[..., Released]


def _judges(another: str) -> tuple[Catcher, ...]:
    says = "the noise has another law"
    return by(trained, name="L2 and Gaussian", says=says), by(trained, name=another, says=says, heavy=True)


def _drawn(patch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Whatever is drawn, in whatever law, is changed."""
    sample = Noise.sample
    patch.setattr(Noise, "sample", lambda self, *args, **options: change(sample(self, *args, **options)))


def _weaker_laws(factor: float) -> None:
    laws = QUICK if factor == 0.98 else QUICK[:1]
    catchers = [by(test_noise.test_draws_follow_the_law, noise=law, heavy=law not in QUICK[:2]) for law in laws]

    @fault(f"noise x{factor}: in the law", *catchers)
    def weak(patch: pytest.MonkeyPatch) -> None:
        _drawn(patch, lambda draws: factor * draws)


def _released(patch: pytest.MonkeyPatch, change: Callable[[Release, Mechanism, Private], Released]) -> None:
    """`change(honest, mechanism, total)` stands in for the release of a step."""
    release = private_run.release

    def wrong(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        return change(lambda: release(mechanism, total, **options), mechanism, total)

    patch.setattr(private_run, "release", wrong)


def _weaker_steps(factor: float) -> None:
    run = by(test_run_noise.test_the_noise_of_a_run_is_the_declared_law, noise=Gaussian(0.8), rate=0.05)
    judges = _judges("Ranked and Laplace")
    attack = by(check_audit, mechanism=BALL, says="does not follow", heavy=True)

    def weaker(honest: Release, mechanism: Mechanism, total: Private) -> Released:
        values = total.unsafe_values().clone()
        out = honest()
        return Released(values + factor * (out.values - values), out.noise, out.reproducible)

    @fault(f"noise x{factor}: in the trainer", run, *([*judges, attack] if factor < 0.98 else []))
    def weak(patch: pytest.MonkeyPatch) -> None:
        _released(patch, weaker)


for _factor in (0.7, 0.9, 0.98):
    _weaker_laws(_factor)
    _weaker_steps(_factor)


@fault(
    "noise skipped on an empty batch",
    *_judges("Ranked and Student-t"),
    by(test_run_noise.test_the_noise_of_a_run_is_the_declared_law, noise=StudentT(9, 0.5), rate=1e-12),
    by(check_audit, mechanism=BALL, says="lie under the claimed curve", heavy=True),
)
def none_on_an_empty_batch(patch: pytest.MonkeyPatch) -> None:
    def skipping(honest: Release, mechanism: Mechanism, total: Private) -> Released:
        values = total.unsafe_values()
        return honest() if values.count_nonzero() else Released(values, mechanism.noise, reproducible=True)

    _released(patch, skipping)


@fault(
    "the same noise in every step",
    *_judges("Ranked and Student-t"),
    by(test_run_noise.test_the_noise_of_a_run_is_the_declared_law, noise=Gaussian(0.8), rate=0.05, heavy=True),
)
def same_in_every_step(patch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []

    def repeating(honest: Release, mechanism: Mechanism, total: Private) -> Released:
        values = total.unsafe_values().clone()
        if not kept:
            kept.append(honest().values - values)
        return Released(values + kept[0], mechanism.noise, reproducible=True)

    _released(patch, repeating)


@fault(
    "noise drawn in every process and summed",
    by(
        test_same_run.test_the_noise_is_the_declared_law_once_and_the_same_everywhere,
        size=2,
        says="_other_law",
    ),
)
def summed_over_ranks(patch: pytest.MonkeyPatch) -> None:
    """The processes of the run are forked from this one, and take it with them."""
    patch.setattr(private_run, "release", private_run.release)  # so that it is put back
    sum_the_noise()


@fault("noise of 32 bits", by(test_noise.test_draws_follow_the_law, noise=Gaussian(1.0), says="repeats"))
def coarse(patch: pytest.MonkeyPatch) -> None:
    _drawn(patch, lambda draws: draws.float().double())


@fault("noise with its tail cut at 1 in 5000", by(test_noise.test_draws_follow_the_law, noise=Gaussian(1.0)))
def cut(patch: pytest.MonkeyPatch) -> None:
    far = float(Gaussian(1.0).magnitude(2e-4))
    _drawn(patch, lambda draws: draws.clamp(-far, far))


@fault("no noise on every hundredth coordinate", by(test_noise.test_draws_follow_the_law, noise=Gaussian(1.0)))
def gaps(patch: pytest.MonkeyPatch) -> None:
    _drawn(patch, lambda draws: draws * (torch.arange(draws.numel()) % 100 > 0))


@fault("Gaussian noise in place of Student-t", by(test_noise.test_draws_follow_the_law, noise=StudentT(9, 1.0)))
def another_law(patch: pytest.MonkeyPatch) -> None:
    """Of the same variance."""
    patch.setattr(StudentT, "_sample", lambda self, n, generator: Gaussian(self._std())._sample(n, generator) * 9**0.5)


# -- who can repeat it -------------------------------------------------------------------------------------------------


@fault(
    "noise touched by torch.manual_seed",
    by(test_random.test_global_seeds_do_not_touch_it),
    by(test_private_run.test_noise_comes_from_the_system_unless_a_seed_is_given),
)
def seeded_by_torch(patch: pytest.MonkeyPatch) -> None:
    rekey = Generator._set_key

    def wrong(self: Generator, key: bytes) -> None:
        rekey(self, key if self.reproducible else hashlib.sha256(str(torch.initial_seed()).encode()).digest())

    patch.setattr(Generator, "_set_key", wrong)


@fault(
    "noise shared by forked processes",
    by(test_random.test_forked_children_draw_their_own),
    by(test_reading.test_workers_have_no_key_of_any_generator, heavy=True),
)
def same_after_a_fork(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Generator, "_drop_parent_key", lambda self: None)


@fault(
    "one stream for the sampler and the noise: of a generator",
    by(test_random.test_purposes_are_apart),
    by(test_run_noise.test_noise_and_batches_come_from_streams_of_their_own),
)
def purposes_ignored(patch: pytest.MonkeyPatch) -> None:
    start = Generator.__init__
    patch.setattr(Generator, "__init__", lambda self, seed=None, **rest: start(self, seed))


@fault(
    "one stream for the sampler and the noise: of a run",
    by(test_run_noise.test_noise_and_batches_come_from_streams_of_their_own),
)
def one_purpose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private_run, "Generator", lambda seed, **_: Generator(seed))


# -- what a denoiser takes it for --------------------------------------------------------------------------------------


@fault("KS with the wrong law", by(test_ks.test_equals_scipy, noise=StudentT(9, 1.0)))
def ks_of_a_gaussian(patch: pytest.MonkeyPatch) -> None:
    distance = KS._distance
    patch.setattr(
        KS, "_distance", lambda self, ascending, noise: distance(self, ascending, Gaussian(np.std(ascending)))
    )
