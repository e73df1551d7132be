"""Faults of what stands between other libraries' trainers and a private run, and of `check` and `fix`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from torch import Tensor
from torch.func import functional_call

from noisette._gradients import batched_layers, engine, loss_adapter, probe
from noisette.integrations import lightning, transformers
from noisette.integrations.transformers import PrivateTrainer
from noisette.training import Finding
from noisette.training._grad_guard import Guard
from tests.faults.table import by, fault
from tests.integrations import test_fabric, test_transformer_models
from tests.unit.integrations import test_lightning
from tests.unit.integrations import test_transformers as test_trainer
from tests.unit.training import test_fix, test_grad_guard, test_validate

PEFT = test_trainer.test_a_wrong_layer_of_peft_is_refused_before_the_first_step


@fault("a module that is filled twice", by(test_fabric.test_a_private_run_leaves_parameters))
def filled_twice(patch: pytest.MonkeyPatch) -> None:
    """As torch ties weights: under each of its names, a module gives back what was filled in under the one before."""

    def with_state(self: Any, state: Mapping[str, Tensor], batch: Any, *, whole: bool = False, tie: bool = True) -> Any:
        named = {f"model.{name}": value for name, value in state.items()}
        return functional_call(self, named, (batch, whole))

    patch.setattr(loss_adapter.LossAdapter, "with_state", with_state)


@fault(
    "dropout of attention left on in the check",
    by(test_transformer_models.test_dropout_of_fused_attention, name="bert", again=None),
)
def dropout_left_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batched_layers.torch._C, "_EnableTorchFunction", batched_layers.torch._C.DisableTorchFunction)


@fault(
    "a warm-up taken for gradients that nobody used", by(test_grad_guard.test_a_schedule_that_begins_at_zero_is_fine)
)
def warm_up_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "used", lambda self: None)


@fault(
    "a hook on a parameter ignored",
    by(test_grad_guard.test_a_hook_on_a_parameter_is_refused_by_name_whenever_it_comes, name="on a gradient"),
)
def hook_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "refuse_hooks", lambda model: None)


@fault(
    "gradients that nobody used overwritten",
    by(
        test_grad_guard.test_gradients_of_two_steps_that_nobody_used_are_told_of_before_the_next_is_paid,
        used="0001",
        paid=2,
    ),
)
def waste_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "_waiting", lambda self: False)


@fault("no guard in the last turn", by(test_grad_guard.test_backward_is_refused_in_the_last_turn_too, steps=2))
def early_rest(patch: pytest.MonkeyPatch) -> None:
    written = Guard.on_grads_written

    def resting(self: Guard, *, last: bool) -> None:
        written(self, last=last)
        if last:
            self.disarm()

    patch.setattr(Guard, "on_grads_written", resting)


@fault("a layer of peft that mixes examples accepted", by(PEFT, fault="examples mixed"))
def mixing_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(probe.IsolationProbe, "_agree", lambda self, one, other, power: True)


@fault("backward() by a trainer accepted", by(test_trainer.test_backward_by_a_callback_is_caught))
def backward_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "on", property(lambda self: False, lambda self, value: None), raising=False)


@fault(
    "a loss of the model's own that contrasts accepted", by(test_trainer.test_a_loss_over_the_whole_batch_is_refused)
)
def contrast_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loss_adapter.PerExampleLoss, "_shared", lambda self, whole, alone: True)


@fault("the training loss in the log of a trainer", by(test_trainer.test_the_log_has_epsilon_and_public_losses_only))
def loss_logged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transformers, "_PRIVATE", ())


@fault("a trainer that resumes without its ledger", by(test_trainer.test_resume_goes_on_with_the_ledger))
def without_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrivateTrainer, "_books", lambda self, resume_from_checkpoint: ())


@fault("examples collated together by a trainer", by(test_trainer.test_a_collator_gets_one_example_at_a_time))
def collated_together(patch: pytest.MonkeyPatch) -> None:
    def together(self: PrivateTrainer) -> Any:
        everything = self.data_collator([self.train_dataset[i] for i in range(len(self.train_dataset))])
        return {name: part for name, part in everything.items() if name != "note"}, None

    patch.setattr(PrivateTrainer, "_examples", property(together))


@fault("a checkpoint of Lightning that is not taken up", by(test_lightning.test_a_training_that_is_stopped_and_resumed))
def not_taken_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lightning.PrivateModule, "on_load_checkpoint", lambda self, checkpoint: None)


@fault("a loader of somebody else accepted", by(test_lightning.test_a_loader_of_ones_own_is_refused))
def loader_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lightning.PrivateModule, "on_train_start", lambda self: None)


@fault("a check that passes BatchNorm", by(test_validate.test_what_is_told_is_what_happens, name="batch norm"))
def batch_norm_passed(patch: pytest.MonkeyPatch) -> None:
    check = sys.modules["noisette.training.validate"]  # the function of that name hides it
    patch.setattr(check, "batch_statistics", lambda model: ())
    patch.setattr(check, "_refused", lambda model, error: Finding("", "slow", "", ""))


@fault("a group for every channel", by(test_fix.test_groups, channels=24))
def one_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys.modules["noisette.training._fix"], "_groups", lambda channels: channels)
