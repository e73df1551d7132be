"""Hugging Face: a `transformers.Trainer` that trains in private. Needs the extra ``noisette[transformers]``."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers.trainer_utils import TrainOutput

from noisette import _io
from noisette.accounting import Ledger
from noisette.denoisers import Denoiser
from noisette.encoders import Encoder
from noisette.errors import InvalidInput
from noisette.integrations._dummy_loader import epoch, turns
from noisette.mechanism import Guarantee, Mechanism
from noisette.noise import Noise
from noisette.objectives import Objective, model_loss
from noisette.training import PrivateRun, make_private, plan
from noisette.training.trainer import check_same

__all__ = ["PrivateTrainer"]

_STATE = "private.pt"
_PRIVATE = ("loss", "train_loss", "total_flos", "num_input_tokens_seen")
"""What a Trainer logs that depends on the training examples beyond what was released."""


class PrivateTrainer(transformers.Trainer):
    """A `Trainer` whose gradients are private; everything else is as it always was, the model and its methods too.

    Give a `mechanism`, or `epsilon`; `delta` in both cases. By `epsilon`, the mechanism follows from the
    arguments of the training: batches of ``per_device_train_batch_size`` are expected on each process, for
    ``max_steps`` or ``num_train_epochs``, with `encoder` and `noise` or, by default, clipping and Gaussian noise. A
    mechanism says itself how many steps there are and how large batches are.

    Batches are Poisson samples, of which `data_collator` gets one example at a time. What is trained is the model's own
    loss of each example, or `goal`, an ``objective(model, batch)``; a loss that mixes the examples of a batch is
    refused. Every step is paid in the `ledger`, by default ``ledger.jsonl`` in the output folder, before it is
    released; checkpoints hold what a resumed run needs to know. The log has epsilon instead of the loss, which is
    private; the loss on evaluation data, which is public, is there as always.
    """

    model: Any
    args: Any
    optimizer: Any

    def __init__(
        self,
        *args: Any,
        mechanism: Mechanism | None = None,
        epsilon: float | None = None,
        delta: float,
        encoder: Encoder | None = None,
        noise: Noise | None = None,
        denoiser: Denoiser | None = None,
        goal: Objective = model_loss,
        ledger: Ledger | Sequence[Ledger] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(*args, **given)
        self.args = copy.copy(self.args)
        _refuse(self, goal)
        self.delta, self.goal, self._denoiser, self._ledger = delta, goal, denoiser, ledger
        self._own_book: Ledger | None = None
        self.private: PrivateRun | None = None
        if (mechanism is None) == (epsilon is None):
            raise InvalidInput(
                "a private training needs either a mechanism or epsilon.", hint="give one of the two, and delta"
            )
        self.mechanism = mechanism or self._planned(epsilon, encoder, noise)
        if mechanism is not None and (encoder or noise):
            raise InvalidInput("a mechanism has its own encoder and noise.", hint="leave encoder and noise out")
        self.args.max_steps = self.mechanism.steps
        expected = self.mechanism.rate * len(self._examples[0]) / self.args.world_size
        self.args.per_device_train_batch_size = max(1, round(expected))

    def guarantee(self) -> Guarantee:
        """What the steps paid so far promise at the trainer's delta."""
        if self.private is None:
            raise InvalidInput("nothing has been trained yet.", hint="call train() first")
        return self.private.guarantee(self.delta)

    # -- instead of batches, their gradients and their losses ------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Turns without examples: the private run draws its own."""
        return turns(epoch(self.mechanism))

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """How many examples there are, not turns."""
        training = self.private is not None and self.is_in_train
        return len(self._examples[0]) if training else super().num_examples(dataloader)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:  # noqa: ARG002
        """One private step: gradients are set. There is no loss to tell."""
        assert self.private is not None
        self.model.train()
        with self.accelerator.autocast():
            self.private.step()
        if not self.private.steps_remaining:
            self.control.should_training_stop = True  # a run that was killed has paid for steps that it did not take
        return torch.zeros((), device=self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002
        """They would tell the lengths of the examples."""
        return 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As always, with epsilon in the place of what is private."""
        if self.private is not None and self.is_in_train:
            for name in _PRIVATE:
                logs.pop(name, None)
            logs["epsilon"] = self.guarantee().epsilon
        super().log(logs, start_time)

    # -- beginning, checkpoints, end -------------------------------------------------------------------------------

    def train(self, *args: Any, **given: Any) -> TrainOutput:
        """As always; when it ends, also by an error, the model is free for other uses, and so is the ledger."""
        try:
            return super().train(*args, **given)
        finally:
            if self.private is not None:
                self.private.close()
            if self._own_book is not None:
                self._own_book.close()

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        given = max_steps, train_dataloader, resume_from_checkpoint
        found = super()._prepare_for_training(*given)
        self.model.train()
        data, collate = self._examples
        ledger = self._books(resume_from_checkpoint)
        workers = self.args.dataloader_num_workers
        how: dict[str, Any] = {"collate_fn": collate, "workers": workers, "denoiser": self._denoiser, "ledger": ledger}
        # Accelerate has put bf16 into the model's forward; here it also tells how closely gradients can agree
        with self.accelerator.autocast():
            self.private = make_private(self.model, self.goal, data, self.mechanism, **how)
        check_same(self.private, getattr(self.optimizer, "optimizer", self.optimizer))
        if resume_from_checkpoint is not None:
            path = Path(resume_from_checkpoint) / _STATE
            state = _io.load(path)
            try:
                self.private.load_state_dict(state)
            except (LookupError, TypeError, ValueError):
                raise InvalidInput(
                    f"{path} is not the state of a private training.", hint="resume from a checkpoint of this trainer"
                ) from None
        return found

    def _books(self, resume_from_checkpoint: Any) -> Any:
        """The ledgers that are paid into, by default one of its own."""
        if not self.is_world_process_zero():
            return ()
        if self._ledger is not None:
            return self._ledger
        path = Path(self.args.output_dir) / "ledger.jsonl"
        if resume_from_checkpoint is None and path.exists():
            raise InvalidInput(
                f"{path} is the ledger of an earlier training.",
                hint="train(resume_from_checkpoint=True) goes on with it; a new training needs another output_dir",
            )
        name = None if path.exists() else f"those of {path.parent.absolute()}"
        self._own_book = Ledger(path, name, must_exist=resume_from_checkpoint is not None)
        return self._own_book

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save and self.private is not None:
            _io.save(Path(output_dir) / _STATE, self.private.state_dict())

    def _finalize_training(self, *given: Any) -> TrainOutput:
        result: TrainOutput = super()._finalize_training(*given)
        return TrainOutput(result.global_step, math.nan, result.metrics)

    def hyperparameter_search(self, *_: Any, **__: Any) -> Any:
        """Refused: the best of many trainings says more about the examples than one."""
        raise InvalidInput(
            "a search over trainings costs more than any of them.",
            hint="choose on public data, or account for the search",
        )

    # -- what was given --------------------------------------------------------------------------------------------

    @cached_property
    def _examples(self) -> tuple[Any, Any]:
        """The data set and the collator, without the columns that the model does not take."""
        if self.train_dataset is None:
            raise InvalidInput("there is nothing to train on.", hint="give a train_dataset")
        if isinstance(self.train_dataset, datasets.Dataset):
            return self._remove_unused_columns(self.train_dataset, description="training"), self.data_collator
        return self.train_dataset, self._get_collator_with_removed_columns(self.data_collator, description="training")

    def _planned(self, epsilon: float | None, encoder: Encoder | None, noise: Noise | None) -> Mechanism:
        assert epsilon is not None
        data, given = self._examples[0], self.args
        batch = given.per_device_train_batch_size * given.world_size
        steps = given.max_steps if given.max_steps > 0 else math.ceil(given.num_train_epochs * len(data) / batch)
        how: dict[str, Any] = {"batch": batch, "steps": steps, "encoder": encoder, "noise": noise}
        return plan(self.model, data, epsilon=epsilon, delta=self.delta, **how)


def _refuse(trainer: PrivateTrainer, goal: Objective) -> None:
    """Raise where the arguments of a training ask for what a private step cannot do."""
    given = trainer.args
    what = {
        "gradients accumulated over batches": given.gradient_accumulation_steps != 1,
        "a batch size that is found by trying": given.auto_find_batch_size,
        "a count of the tokens seen, which is private,": given.include_num_input_tokens_seen not in ("no", False),
        "float16 with scaled gradients": given.fp16,
        "a compiled model": given.torch_compile,
        "a model in shards": bool(given.fsdp or given.deepspeed),
        "several GPUs in one process": given.n_gpu > 1,
        "batches of similar lengths": str(given.train_sampling_strategy).rpartition(".")[2] != "random",
    }
    hints = {
        "gradients accumulated over batches": "take a larger per_device_train_batch_size, which needs no more memory",
        "float16 with scaled gradients": "take bf16, or float32",
        "several GPUs in one process": "start one process for each by torchrun",
    }
    for name, asked in what.items():
        if asked:
            raise InvalidInput(
                f"{name} cannot be had in a private training.",
                hint=hints.get(name, "leave that argument of the training out"),
            )
    own = type(trainer).compute_loss is not transformers.Trainer.compute_loss
    if goal is model_loss and (own or trainer.compute_loss_func is not None or trainer.label_smoother is not None):
        raise InvalidInput(
            "a loss of the trainer's own is over a whole batch.",
            hint="give goal=objective(model, batch) with one loss for each example; noisette.objectives has some",
        )
