"""Faults of the entrance: examples that are collated together, lost, used twice or averaged before they are clipped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisette import Released
from noisette._gradients import loss_adapter, state_guard, strategies
from noisette._pytree import packed
from noisette.training import PrivateRun, _reading, private_run
from tests.faults.table import by, fault
from tests.promises import test_sensitivity
from tests.unit._gradients import test_loss_adapter, test_state_guard
from tests.unit._gradients.test_loss_adapter import info_nce
from tests.unit.training import test_reading

PADDING = by(test_reading.test_no_example_is_padded_because_of_another, collate_fn=test_reading.padded, workers=0)
SAME = by(test_reading.test_a_data_set_trains_as_its_tensors_do, mechanism=test_reading.gaussian(), workers=2)


@fault("examples collated together", PADDING)
def collated_together(patch: pytest.MonkeyPatch) -> None:
    def grouped(examples: list[Any]) -> Any:
        return [np.arange(len(examples))], packed([examples[0][0]([example for _, example in examples])])

    patch.setattr(_reading._OneByOne, "__getitem__", lambda self, number: (self._collate_fn, self._dataset[number]))
    patch.setattr(_reading, "_grouped", grouped)


@fault("examples read together", by(test_reading.test_a_data_set_is_asked_for_one_example_at_a_time))
def read_together(patch: pytest.MonkeyPatch) -> None:
    def together(self: Any, numbers: list[int]) -> list[Any]:
        many = getattr(self._dataset, "__getitems__", None)
        return [self[number] for number in numbers] if many is None else [self._collated(one) for one in many(numbers)]

    patch.setattr(_reading._OneByOne, "__getitems__", together, raising=False)


@fault("a buffer that is used again", by(test_reading.test_memory_that_is_used_again_is_copied, way="collate_fn"))
def not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_reading._OneByOne, "_collated", lambda self, example: self._collate_fn([example]))


@fault("a file that workers share", by(test_reading.test_workers_open_files_of_their_own))
def read_here(patch: pytest.MonkeyPatch) -> None:
    arriving = _reading.LoaderExamples._arriving

    def here(self: _reading.LoaderExamples, index: np.ndarray) -> list[Any]:
        return [batch for _, batch in _reading._next(arriving(self, [index.tolist()], 0)) or []]

    patch.setattr(_reading.LoaderExamples, "get", here)


@fault("dropout under a seed that others know", by(test_sensitivity.test_dropout_does_not_follow_a_public_seed))
def public_dropout(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private_run, "isolated_rng", lambda device, seed: nullcontext())


@fault(
    "an example that leads to the others",
    by(test_state_guard.test_memory_of_others_is_out_of_reach, way="_base"),
    by(test_state_guard.test_a_text_form_shows_one_example),
)
def views(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(strategies, "change", lambda batch, by: batch)
    patch.setattr(state_guard, "_TELLING", ())


@fault(
    "what collate_fn drops or repeats accepted",
    by(
        test_reading.test_a_collate_fn_that_drops_repeats_or_fails_is_refused,
        collate_fn=test_reading.twice,
        said="is not one row",
        workers=0,
    ),
    by(
        test_reading.test_a_collate_fn_that_drops_repeats_or_fails_is_refused,
        collate_fn=test_reading.none,
        said="is not one row",
        workers=0,
    ),
)
def any_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_reading, "size", lambda batch: 1)


@fault("batches read ahead that are used twice", SAME)
def used_twice(patch: pytest.MonkeyPatch) -> None:
    follow = _reading._next
    kept: list[Any] = []

    def again(arriving: Any) -> Any:
        if len(kept) == 1:
            return kept.pop()
        found = follow(arriving)
        kept.append(found)
        return found

    patch.setattr(_reading, "_next", again)


@fault(
    "a length that changes accepted",
    by(test_reading.test_a_data_set_whose_length_changes_is_refused, count=39),
)
def any_length(patch: pytest.MonkeyPatch) -> None:
    class Forgetful(_reading._OneByOne):
        @property
        def _count(self) -> int:
            return len(self._dataset)

        @_count.setter
        def _count(self, value: int) -> None:
            pass

    patch.setattr(_reading, "_OneByOne", Forgetful)


@fault(
    "a step paid before its examples are there",
    by(test_reading.test_an_example_that_cannot_be_read_is_named_and_costs_nothing, workers=0),
    by(test_reading.test_a_worker_that_dies_loses_nothing_and_releases_nothing),
)
def paid_first(patch: pytest.MonkeyPatch) -> None:
    taken, pay = PrivateRun._run_step, PrivateRun._pay

    def early(self: PrivateRun, which: int) -> Released:
        pay(self, which)
        return taken(self, which)

    patch.setattr(PrivateRun, "_run_step", early)
    patch.setattr(PrivateRun, "_pay", lambda self, which: None)


@fault(
    "an objective that averages over the batch accepted",
    by(
        test_loss_adapter.test_an_objective_that_gives_something_else_is_refused,
        objective=lambda model, batch: model(batch[0]).mean(),
    ),
    by(
        test_loss_adapter.test_an_objective_that_mixes_examples_is_refused,
        objective=lambda model, batch: model(batch[0]).mean().expand(len(batch[0])),
    ),
)
def averages_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss_adapter.LossAdapter, "seen", loss_adapter.PerExampleLoss.seen)


@fault(
    "a contrastive loss accepted", by(test_loss_adapter.test_a_loss_that_contrasts_examples_is_refused, loss=info_nce)
)
def contrast_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss_adapter, "is_shared", lambda loss, outputs, targets: True)


@fault("class weights without effect", by(test_loss_adapter.test_class_weights))
def weights_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss_adapter, "for_one", lambda loss: loss)
    patch.setattr(loss_adapter, "is_shared", lambda loss, outputs, targets: True)


@fault("a mask that is left out", by(test_loss_adapter.test_a_dict_with_an_attention_mask))
def mask_lost(patch: pytest.MonkeyPatch) -> None:
    given = loss_adapter.LossAdapter.with_state

    def without(self: loss_adapter.LossAdapter, state: Mapping[str, Tensor], batch: Any, **how: bool) -> Any:
        if isinstance(batch, dict) and "attention_mask" in batch:
            batch = {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}
        return given(self, state, batch, **how)

    patch.setattr(loss_adapter.LossAdapter, "with_state", without)
