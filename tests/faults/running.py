"""Faults of a run: steps in the wrong order, steps that nobody pays for, and resuming what must not be resumed."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from noisette import Generator, Mechanism, Private, Released, _io
from noisette.accounting import Ledger, _ledger_format, ledger
from noisette.denoisers import KS, Denoiser, LowPass, State
from noisette.noise import Gaussian
from noisette.training import PoissonSampler, PrivateRun, private_run
from tests.conformance.denoiser_checks import check_bad_input, check_post_processing
from tests.conformance.test_denoisers import test_denoiser as conforms
from tests.faults.table import Catcher, by, fault
from tests.promises import test_kill, test_resume, test_trained_is_accounted
from tests.unit import test_io
from tests.unit.accounting import test_ledger
from tests.unit.training import test_private_run

STEPS = test_trained_is_accounted.test_trained_is_accounted


def _judges(says: str) -> tuple[Catcher, ...]:
    return by(STEPS, name="L2 and Gaussian", says=says), by(STEPS, name="Ranked and Student-t", says=says, heavy=True)


# -- the order of a step -----------------------------------------------------------------------------------------------


@fault("noise once per micro-batch", *_judges("not one release for each step"))
def noise_for_each_chunk(patch: pytest.MonkeyPatch) -> None:
    def step(self: PrivateRun) -> Released:
        mechanism = self.mechanisms[0]
        index = PoissonSampler(len(self._examples), mechanism.rate, self._sampling).draw()
        self._pay(0)
        values = torch.zeros(self._gradients.dim, dtype=torch.float64)
        for rows in self._gradients.chunks(self._examples.get(index)[0]):
            part = mechanism.encoder.encode_sum(rows)
            values = values + private_run.release(mechanism, part, generator=self._noise).values
        return _written(self, Released(values, mechanism.noise, reproducible=True))

    patch.setattr(PrivateRun, "step", step)


@fault("noise after denoising", *_judges("the released sum is not that of the encoded gradients"))
def denoised_first(patch: pytest.MonkeyPatch) -> None:
    def step(self: PrivateRun) -> Released:
        mechanism = self.mechanisms[0]
        total = self._encode_batch_sum(mechanism)
        self._pay(0)
        early = Released(total.unsafe_values(), mechanism.noise, reproducible=True)
        denoised, self.state = self.denoiser.update(early, self.state)
        released = private_run.release(mechanism, Private(denoised.values), generator=self._noise)
        self._gradients.write(released.values / (mechanism.rate * len(self._examples)))
        self.num_updates += 1
        return released

    patch.setattr(PrivateRun, "step", step)


def _written(self: PrivateRun, released: Released) -> Released:
    denoised, self.state = self.denoiser.update(released, self.state)
    self._gradients.write(denoised.values / (self.mechanisms[0].rate * len(self._examples)))
    self.num_updates += 1
    return denoised


@fault("division by the realised batch size", *_judges("over the expected batch size"))
def divided_by_its_size(patch: pytest.MonkeyPatch) -> None:
    step, draw = PrivateRun.step, PoissonSampler.draw
    sizes: list[int] = []

    def counted(self: PoissonSampler) -> Any:
        index = draw(self)
        sizes.append(len(index))
        return index

    def divided(self: PrivateRun) -> Released:
        out = step(self)
        self._gradients.write(out.values / max(1, sizes[-1]))
        return out

    patch.setattr(PoissonSampler, "draw", counted)
    patch.setattr(PrivateRun, "step", divided)


# -- denoising ---------------------------------------------------------------------------------------------------------


@fault(
    "a denoiser that reads private values",
    by(test_trained_is_accounted.test_every_update_is_post_processing, denoiser=LowPass()),
    by(STEPS, name="L2 and Gaussian", says="the update is not the denoised release"),
)
def denoised_by_the_truth(patch: pytest.MonkeyPatch) -> None:
    """A hundredth of the way from what was released to what was to be hidden."""
    release, update = private_run.release, Denoiser.update
    seen: list[Tensor] = []

    def watched(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        seen.append(total.unsafe_values().clone())
        return release(mechanism, total, **options)

    def wrong(self: Denoiser, released: Released, state: State) -> tuple[Released, State]:
        better = released.values + 0.01 * (seen[-1] - released.values)
        return update(self, Released(better, released.noise, released.reproducible), state)

    patch.setattr(private_run, "release", watched)
    patch.setattr(Denoiser, "update", wrong)


@fault("a denoiser that takes a private sum", by(conforms, denoiser=LowPass(), check=check_bad_input))
def private_let_in(patch: pytest.MonkeyPatch) -> None:
    update = Denoiser.update

    def wrong(self: Denoiser, released: Any, state: State) -> tuple[Released, State]:
        if isinstance(released, Private):
            released = Released(released.unsafe_values(), Gaussian(1.0), reproducible=True)
        return update(self, released, state)

    patch.setattr(Denoiser, "update", wrong)


@fault("a denoiser that remembers beside its state", by(conforms, denoiser=KS(), check=check_post_processing))
def remembers(patch: pytest.MonkeyPatch) -> None:
    seen: list[None] = []

    def wrong(self: KS, released: Released, state: State) -> tuple[Tensor, State]:
        seen.append(None)
        return released.values / len(seen), dict(state)

    patch.setattr(KS, "_update", wrong)


# -- paying ------------------------------------------------------------------------------------------------------------


@fault(
    "ledger written after the release",
    by(test_resume.test_a_full_disk_releases_nothing_that_is_not_paid),
    by(test_kill.test_paying_after_the_release_is_seen),
)
def paid_late(patch: pytest.MonkeyPatch) -> None:
    step, pay = PrivateRun.step, PrivateRun._pay

    def late(self: PrivateRun) -> Released:
        out = step(self)
        pay(self, 0)
        return out

    patch.setattr(PrivateRun, "step", late)
    patch.setattr(PrivateRun, "_pay", lambda self, which: None)


@fault("a step beyond the budget", by(test_private_run.test_the_step_after_the_last_is_refused))
def one_more(patch: pytest.MonkeyPatch) -> None:
    left, pay = PrivateRun._left, PrivateRun._pay
    patch.setattr(PrivateRun, "_left", lambda self, which: left(self, which) + (self.num_updates == self.total))
    patch.setattr(PrivateRun, "_pay", lambda self, which: pay(self, which) if self.num_updates < self.total else None)


@fault("payments not synced to disk", by(test_ledger.test_an_entry_is_synced_before_spend_returns))
def not_synced(patch: pytest.MonkeyPatch) -> None:
    append, system = Ledger._append, ledger.os

    class Unsynced:
        """The os module, but for its fsync."""

        def __getattr__(self, name: str) -> Any:
            return (lambda file: None) if name == "fsync" else getattr(system, name)

    def wrong(self: Ledger, entry: dict[str, Any]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ledger, "os", Unsynced())
            append(self, entry)

    patch.setattr(Ledger, "_append", wrong)


@fault(
    "an edited ledger accepted",
    by(test_ledger.test_a_line_that_is_gone_moved_or_doubled_is_refused),
    by(test_resume.test_a_cut_ledger_is_refused),
)
def any_chain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_ledger_format, "_chain", lambda head, entry: "f" * 16)
    patch.setattr(Ledger, "contains_entry", lambda self, head: True)


# -- resuming ----------------------------------------------------------------------------------------------------------


@fault(
    "generator state restored on resume",
    by(test_resume.test_two_resumes_of_one_checkpoint_draw_different_noise),
)
def restored(patch: pytest.MonkeyPatch) -> None:
    """Every process of a run starts the same stream."""
    patch.setattr(private_run, "Generator", lambda seed, purpose, **_: Generator(12345, purpose=purpose))


@fault(
    "a checkpoint of another mechanism accepted",
    by(test_resume.test_another_mechanism_is_refused),
    by(test_resume.test_more_steps_are_another_mechanism),
)
def any_mechanism(patch: pytest.MonkeyPatch) -> None:
    load = PrivateRun.load_state_dict

    def wrong(self: PrivateRun, state: dict[str, Any]) -> None:
        load(self, {**state, "mechanism": private_run.mechanisms_hash(self.mechanisms)})

    patch.setattr(PrivateRun, "load_state_dict", wrong)


# -- files -------------------------------------------------------------------------------------------------------------


@fault("a fixed temporary name", by(test_io.test_two_writers_of_one_file_do_not_meet, says="file exists"))
def one_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_io, "_beside", lambda path: path.with_name(f"{path.name}.new"))


@fault(
    "a fixed temporary name: of a file that is cut",
    by(test_io.test_two_writers_of_one_file_do_not_meet, says="cannot be written"),
    by(test_io.test_what_another_has_begun_to_write_is_left_alone),
)
def one_name_for_all(patch: pytest.MonkeyPatch) -> None:
    one_name(patch)
    patch.setattr(os, "O_EXCL", os.O_TRUNC)
