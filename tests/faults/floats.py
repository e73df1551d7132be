"""Faults of floats: bits that tell more than the number they stand for, and rounding that nobody pays for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from noisette import Generator, Private, _native
from noisette._gradients import PerExampleGradients
from noisette._gradients.batch_invariance import Places
from noisette._gradients.chunk_policy import Plan, Planner
from noisette._gradients.strategies import Loop
from noisette._gradients.vector_ends import Ends
from noisette._pytree import Batch
from noisette._quantization import Grid
from noisette.accounting import _float_error
from noisette.accounting._corrections import Correction
from noisette.encoders import L2, Snap, base
from noisette.noise import Gaussian, GeneralizedGaussian, Laplace, StudentT
from tests.faults.table import by, fault
from tests.promises import test_exact_sums, test_example_shapes, test_leave_one_out, test_low_bits_attack
from tests.unit import test_quantization, test_random, test_release
from tests.unit.accounting import test_corrections, test_float_error
from tests.unit.noise import test_sampling_error

LOW_BITS = tuple(
    by(test_low_bits_attack.test_low_bits_tell_nothing, law=law, count=100_000, heavy=law not in {Gaussian, StudentT})
    for law in test_low_bits_attack.LAWS
)
FIRST = test_exact_sums.ENCODERS[0]


@fault("grid left out", *LOW_BITS)
def no_grid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grid, "add_noise", lambda self, total, noise: total + noise)


@fault(
    "noise added to the whole sum in floats",
    by(test_quantization.test_a_release_is_the_ideal_one_rounded, largest=1.0, scale=1.0, variant="off"),
)
def rounded_with_the_sum(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Grid, total: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return (torch.round((total + noise) / self.release_quantum) * self.release_quantum).clamp(
            -self.clamp, self.clamp
        )

    patch.setattr(Grid, "add_noise", wrong)


@fault(
    "rows not rounded",
    by(
        test_exact_sums.test_sums_are_the_same_in_any_order_and_any_parts,
        encoder=FIRST,
        dtype=torch.float64,
    ),
    by(
        test_exact_sums.test_one_example_moves_the_sum_within_the_image_exactly,
        encoder=FIRST,
        dtype=torch.float64,
    ),
)
def rows_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base, "toward_zero", lambda rows, step: rows)


@fault(
    "rows rounded to the nearest, not toward zero",
    by(
        test_quantization.test_rounded_rows_stay_in_the_image_and_their_sum_is_exact_in_any_order,
        encoder=L2.examples()[0],
    ),
)
def to_the_nearest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base, "toward_zero", lambda rows, step: torch.round(rows / step) * step)


@fault(
    "floats not paid for", by(test_float_error.test_real_runs_pay_little, mechanism=test_float_error.RUNS[0], most=1e-5)
)
def for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_float_error, "addition", lambda *_: Correction())


@fault("draws in pairs taken for independent ones", by(test_float_error.test_draws_made_together_are_wrong_together))
def alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaussian, "sampling_error", replace(Gaussian.sampling_error, together=1))


@fault("a shift paid for once", by(test_corrections.test_no_run_within_the_addition_loses_more))
def once(patch: pytest.MonkeyPatch) -> None:
    honest = test_corrections.deltas_after_correction
    half = lambda given, *rest: honest(Correction(given.chance, given.shift / 2), *rest)  # noqa: E731
    patch.setattr(test_corrections, "deltas_after_correction", half)


@fault("tails of 64 bits", by(test_random.test_deep_uniforms_are_right_for_their_own_size))
def shallow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Generator, "uniforms_128", Generator.uniforms)


@fault("a logarithm in single precision", by(test_sampling_error.test_inverses, noise=Laplace(1.0), count=600))
def single(patch: pytest.MonkeyPatch) -> None:
    honest = Laplace._abs_quantile
    patch.setattr(Laplace, "_abs_quantile", lambda self, u: honest(self, u).astype("float32").astype("float64"))


@fault(
    "angles from the other axis",
    by(test_sampling_error.test_pairs_and_angles, noise=StudentT(1, 1.0), count=600),
)
def turned(patch: pytest.MonkeyPatch) -> None:
    honest = StudentT._turned
    patch.setattr(StudentT, "_turned", lambda self, u, v: honest(self, u, v.neg().add(1).neg().add(1)))


def _given_to_the_kernel(patch: pytest.MonkeyPatch, change: Callable[[np.ndarray, np.ndarray], None]) -> None:
    """`change(words, draws)` has a look at the words before the kernel turns them into pairs, and at what it made."""
    honest = _native.native.gaussian_pairs

    def wrong(words: np.ndarray, draws: np.ndarray, isa: str) -> None:
        draws[:] = 0
        change(words, draws)
        honest(words, draws, isa)
        change(words, draws)

    patch.setattr(_native.native, "gaussian_pairs", wrong)


PLAIN_PAIRS = by(test_sampling_error.test_pairs_from_words, variant="plain", count=600)


@fault("pairs of the kernel in single precision", PLAIN_PAIRS)
def single_pairs(patch: pytest.MonkeyPatch) -> None:
    def rounded(words: np.ndarray, draws: np.ndarray) -> None:
        draws[:] = draws.astype(np.float32)

    _given_to_the_kernel(patch, rounded)


@fault("radii of the kernel from one word", PLAIN_PAIRS)
def shallow_radii(patch: pytest.MonkeyPatch) -> None:
    def without_the_second(words: np.ndarray, draws: np.ndarray) -> None:
        words[len(words) // 3 : 2 * len(words) // 3] = 0

    _given_to_the_kernel(patch, without_the_second)


@fault("a sum that can be released twice", by(test_release.test_a_sum_is_released_once_and_in_its_own_place))
def kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Private, "unsafe_consume", Private.unsafe_values)


@fault(
    "noise added to a copy of the sum, which stays",
    by(test_release.test_a_sum_is_released_once_and_in_its_own_place),
    by(test_release.test_what_fails_midway_leaves_nothing),
)
def copied(patch: pytest.MonkeyPatch) -> None:
    honest = Private.unsafe_consume
    patch.setattr(Private, "unsafe_consume", lambda self: honest(self).clone())


@fault(
    "strips in the order of the line",
    by(test_sampling_error.test_strips_are_drawn_as_often_as_their_areas_say, noise=GeneralizedGaussian(1.5, 1.0)),
)
def tails_last(patch: pytest.MonkeyPatch) -> None:
    made = test_sampling_error.strips(GeneralizedGaussian(1.5, 1.0))
    patch.setattr(made, "_covered", 1 - (1 - made._covered))


@fault(
    "a run that does not say that its gradients are inexact",
    by(test_exact_sums.test_runs_say_whether_their_gradients_are_steady),
)
def silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PerExampleGradients, "exact", True)


@fault(
    "sizes that nobody has tried",
    by(test_exact_sums.test_one_output_is_computed_by_multiples),
    by(test_leave_one_out.test_only_sizes_without_an_end_are_used, encoder=L2(radius=0.1)),
    by(test_leave_one_out.test_what_cannot_be_shown_takes_the_loop_or_is_told_before_the_first_step),
)
def any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Places, "agree", lambda *_: True)


@fault(
    "places that are tried by fours, as vectors and rows of matrices do not end",
    by(test_leave_one_out.test_only_sizes_without_an_end_are_used, encoder=L2(radius=0.1)),
)
def by_fours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ends, "fits", lambda *_, **__: True)
    honest = Places._everywhere
    patch.setattr(
        Places, "_everywhere", lambda self, copies, count, least: count % 4 or honest(self, copies, count, least)
    )


@fault(
    "the loop for whoever stands in a chunk with somebody whose shape no other way can run",
    by(test_example_shapes.test_a_shape_that_the_way_cannot_run_goes_alone, encoder=Snap()),
)
def all_by_the_loop(patch: pytest.MonkeyPatch) -> None:
    honest = Planner.of

    def of(self: Planner, batch: Batch) -> Plan:
        found = honest(self, batch)
        if isinstance(found.way, Loop):
            self._plans = dict.fromkeys(self._plans, found)
        return found

    patch.setattr(Planner, "of", of)
