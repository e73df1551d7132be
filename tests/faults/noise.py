"""Faults of the noise: too little of it, of another law, or noise that somebody can repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch

from noisette import Gaussian, Generator, Noise, StudentT
from noisette.spec import registered
from noisette.training import private_run
from tests import test_generator
from tests.conformance import test_noise
from tests.denoise import test_ks
from tests.denoise.test_ks import KS
from tests.faults.audited import BALL, check_audit
from tests.faults.table import by, fault
from tests.training import test_noise_of_a_run, test_private_run, test_trained_is_accounted
from tests.training.test_trained_is_accounted import FAULTS as STEP_FAULTS

LAWS = [kind.examples()[0] for kind in registered(Noise).values() if kind.__module__.startswith("noisette.")]
QUICK = [noise for noise in LAWS if type(noise).__name__ not in {"VarianceGamma", "GeneralizedGaussian", "ScipyNoise"}]
"""Laws whose distribution function takes no second for 4e5 draws; the draws of all go through `Noise.sample`."""

ANOTHER_LAW = "the noise has another law"


def _drawn(patch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Whatever is drawn, in whatever law, is changed."""
    sample = Noise.sample
    patch.setattr(Noise, "sample", lambda self, *args, **options: change(sample(self, *args, **options)))


def _weaker_laws(factor: float) -> None:
    laws = QUICK if factor == 0.98 else QUICK[:1]
    catchers = [by(test_noise.test_draws_follow_the_law, noise=noise) for noise in laws]

    @fault(f"noise x{factor}: in the law", *catchers)
    def weak(patch: pytest.MonkeyPatch) -> None:
        _drawn(patch, lambda draws: factor * draws)


def _weaker_steps(factor: float) -> None:
    run = by(test_noise_of_a_run.test_the_noise_of_a_run_is_the_declared_law, noise=Gaussian(0.8), rate=0.05)
    judge = by(test_trained_is_accounted.test_trained_is_accounted, name="Ranked and Laplace", says=ANOTHER_LAW)
    attack = by(check_audit, mechanism=BALL, says="does not follow", heavy=True)
    fault(f"noise x{factor}: in the trainer", run, *([judge, attack] if factor < 0.98 else []))(
        test_trained_is_accounted._noise_times(factor)
    )


for _factor in (0.7, 0.9, 0.98):
    _weaker_laws(_factor)
    _weaker_steps(_factor)

fault(
    "noise skipped on an empty batch",
    by(test_trained_is_accounted.test_trained_is_accounted, name="L2 and Gaussian", says=ANOTHER_LAW),
    by(test_noise_of_a_run.test_the_noise_of_a_run_is_the_declared_law, noise=StudentT(9, 0.5), rate=1e-12),
    by(check_audit, mechanism=BALL, says="lie under the claimed curve", heavy=True),
)(STEP_FAULTS["no noise on empty batches"][0])

fault(
    "the same noise in every step",
    by(test_trained_is_accounted.test_trained_is_accounted, name="L2 and Gaussian", says=ANOTHER_LAW),
    by(test_noise_of_a_run.test_the_noise_of_a_run_is_the_declared_law, noise=Gaussian(0.8), rate=0.05),
)(STEP_FAULTS["the same noise every step"][0])


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
    by(test_generator.test_global_seeds_do_not_touch_it),
    by(test_private_run.test_noise_comes_from_the_system_unless_a_seed_is_given),
)
def seeded_by_torch(patch: pytest.MonkeyPatch) -> None:
    rekey = Generator._rekey

    def wrong(self: Generator, key: bytes) -> None:
        rekey(self, key if self.reproducible else hashlib.sha256(str(torch.initial_seed()).encode()).digest())

    patch.setattr(Generator, "_rekey", wrong)


@fault("noise shared by forked processes", by(test_generator.test_forked_children_draw_their_own))
def same_after_a_fork(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("os.getpid", lambda: 1)


@fault(
    "one stream for the sampler and the noise: of a generator",
    by(test_generator.test_purposes_are_apart),
    by(test_noise_of_a_run.test_noise_and_batches_come_from_streams_of_their_own),
)
def purposes_ignored(patch: pytest.MonkeyPatch) -> None:
    start = Generator.__init__
    patch.setattr(Generator, "__init__", lambda self, seed=None, **rest: start(self, seed))


@fault(
    "one stream for the sampler and the noise: of a run",
    by(test_noise_of_a_run.test_noise_and_batches_come_from_streams_of_their_own),
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
