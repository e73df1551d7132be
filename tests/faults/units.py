"""Faults of units and of capped batches: what is drawn, how many, in which order, and who pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from noisette import Encoder, Generator, Private
from noisette.accounting import pld
from noisette.mechanism import Mechanisms
from noisette.training import PoissonSampler, _rank_slice, private_run
from noisette.training._units import Units
from tests.faults.table import by, fault
from tests.promises import test_truncated_batches
from tests.unit.accounting import test_truncation
from tests.unit.training import test_units

MOVE = test_units.test_one_unit_moves_the_sum_by_the_encoding_of_its_mean


@fault(
    "sampling examples instead of units",
    by(test_units.test_units_are_drawn_by_poisson_sampling, rate=0.1),
    by(test_units.check_audit, steps=100, heavy=True),
)
def examples_are_drawn(patch: pytest.MonkeyPatch) -> None:
    """Each example by itself; those of one unit that were drawn are averaged. A unit of sixty is nearly always in."""

    def draws(
        mechanisms: Mechanisms, left: Sequence[int], mine: _rank_slice.RankSlice, sampling: Generator
    ) -> Iterator[_rank_slice.BatchDraw]:
        assert mine.units is not None
        for which, (mechanism, steps) in enumerate(zip(mechanisms, left, strict=True)):
            sampler = PoissonSampler(mine.examples, mechanism.rate, sampling)
            for _ in range(steps):
                index = sampler.draw()
                index = index[np.argsort(mine.units.numbers[index], kind="stable")]
                groups = np.unique(mine.units.numbers[index], return_inverse=True)[1]
                yield _rank_slice.BatchDraw(which, index, groups)

    patch.setattr(_rank_slice, "batch_draws", draws)
    patch.setattr(private_run, "batch_draws", draws)


@fault("per_unit ignored", by(test_units.test_of_every_unit_so_many_examples_are_taken_and_no_more))
def all_of_them(patch: pytest.MonkeyPatch) -> None:
    start = Units.__init__
    patch.setattr(Units, "__init__", lambda self, numbers, per_unit: start(self, numbers, 10**6))


@fault("always the same examples of a unit", by(test_units.test_which_ones_is_drawn_anew_and_each_as_often))
def always_the_first(patch: pytest.MonkeyPatch) -> None:
    taken = Units.sample_members
    patch.setattr(Units, "sample_members", lambda self, drawn, generator: taken(self, drawn, Generator(seed=0)))


@fault(
    "averaging after encoding",
    by(test_units.test_the_mean_is_taken_before_encoding),
    by(MOVE, kind="dense", name="L2", read=False, dtype=torch.float64, size=7),
)
def averaged_after(patch: pytest.MonkeyPatch) -> None:
    _groups_by(patch, lambda encoded, members: encoded / members)


@fault(
    "a unit's examples encoded one by one and summed",
    by(test_units.test_the_mean_is_taken_before_encoding),
    by(MOVE, kind="normed", name="Snap", read=False, dtype=torch.float64, size=7),
    by(MOVE, kind="dense", name="Ranked", read=True, dtype=torch.float64, size=1000),
    by(test_units.check_audit, steps=100, heavy=True),
)
def summed(patch: pytest.MonkeyPatch) -> None:
    _groups_by(patch, lambda encoded, members: encoded)


def _groups_by(patch: pytest.MonkeyPatch, joined: object) -> None:
    honest = Encoder.encode_sum

    def wrong(self: Encoder, rows: torch.Tensor, groups: torch.Tensor | None = None) -> Private:
        if groups is None:
            return honest(self, rows)
        _, index, members = torch.unique(groups, return_inverse=True, return_counts=True)
        return Private(joined(self.encode(rows), members[index][:, None]).sum(dim=0))  # type: ignore[operator]

    patch.setattr(Encoder, "encode_sum", wrong)


@fault(
    "the cut not paid for",
    by(test_truncation.test_batches_that_are_often_cut, units=50, rate=0.1, most=8, scale=1.0, steps=20),
    by(test_truncation.check_one_cut_step, units=10, rate=0.5, most=5, scale=1.0, tight=False),
)
def cut_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pld, "exchanges", lambda sampling: ())


@fault(
    "an example that takes another one's place counted as one more",
    by(test_truncation.check_one_cut_step, units=20, rate=1.0, most=20, scale=1.0, tight=False),
)
def exchanged_for_nothing(patch: pytest.MonkeyPatch) -> None:
    curve = pld.step_curve
    patch.setattr(pld, "step_curve", lambda encoder, noise, exchanged=False: curve(encoder, noise))


@fault(
    "a cut that always drops the same examples",
    by(test_truncated_batches.test_a_cut_batch_has_just_as_many_and_nobody_is_always_left_out),
    by(test_truncated_batches.test_one_drawn_set_is_cut_to_others_each_time),
)
def last_ones_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PoissonSampler, "_cut", lambda self, index: index[: self._most])


@fault(
    "a cut that cuts nothing",
    by(test_truncated_batches.test_a_cut_batch_has_just_as_many_and_nobody_is_always_left_out),
    by(test_truncated_batches.test_memory_never_exceeds_that_of_a_full_batch, steps=2000, says="<=", heavy=True),
)
def nobody_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PoissonSampler, "_cut", lambda self, index: index)
