"""Lightning 2: a module that trains in private, in manual optimization. Needs the extra ``noisette[lightning]``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import lightning
from torch.utils.data import DataLoader

from noisette.errors import InvalidInput
from noisette.integrations._dummy_loader import epoch, turns
from noisette.mechanism import Guarantee
from noisette.training import PrivateRun
from noisette.training.trainer import check_same

__all__ = ["PrivateModule"]

_PRECISIONS = ("32-true", "64-true", "bf16-true")
_KEY = "noisette"


class PrivateModule(lightning.LightningModule):
    """A LightningModule whose training steps are those of a private run; all else is as in any other.

    You write `configure_private`, which makes the run for the network that the module holds, ``configure_optimizers``
    and, for public data, ``validation_step``; `training_step` and `train_dataloader` are there. `delta` is the one at
    which epsilon is logged, also on the progress bar. An epoch is as many steps as draw each example once on average.
    Training ends with the run, or with ``max_epochs`` or ``max_steps``, whichever comes first. Checkpoints of
    Lightning hold what a resumed run needs to know; its ledger has to be at hand.
    """

    delta: float

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.automatic_optimization = False
        self._held: list[PrivateRun] = []  # a list, since the run is no part of the module
        self._loaded: dict[str, Any] | None = None

    @abstractmethod
    def configure_private(self) -> PrivateRun:
        """The run, by `make_private`; called when training begins, with everything on its device."""

    @property
    def private(self) -> PrivateRun:
        """The run that is in progress, or has ended."""
        if not self._held:
            raise InvalidInput("nothing has been trained yet.", hint="give the module to Trainer.fit first")
        return self._held[0]

    def guarantee(self) -> Guarantee:
        """What the steps paid so far promise at the module's delta."""
        return self.private.guarantee(self.delta)

    # -- what Lightning calls --------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        """Make the run, or go on with that of a checkpoint."""
        if self.trainer.precision not in _PRECISIONS:
            raise InvalidInput(
                f"precision {self.trainer.precision} scales or casts gradients on the way.",
                hint=f"take one of {', '.join(_PRECISIONS)}",
            )
        self.train()
        self._held = [self.configure_private()]
        check_same(self.private, *self.trainer.optimizers)
        if self._loaded is not None:
            self.private.load_state_dict(self._loaded)

    def train_dataloader(self) -> DataLoader[Any]:
        """Turns without examples: the private run draws its own."""
        return turns(epoch(self.private.mechanisms[0]))

    def on_train_start(self) -> None:
        """Raise where examples come from somewhere else."""
        source = self.trainer.fit_loop._data_source
        if source.instance is not self:
            raise InvalidInput(
                "a private run draws its own batches.", hint="give the data to make_private, and no loader to fit"
            )

    def training_step(self, batch: Any, number: int) -> None:  # noqa: ARG002
        """One private step of every optimizer."""
        self.private.step()
        made = self.optimizers()
        for optimizer in made if isinstance(made, list) else [made]:
            optimizer.step()
            optimizer.zero_grad()
        self._schedule("step")
        trainer: Any = self.trainer
        ends = not self.private.steps_remaining
        if ends or trainer.is_last_batch or self.private.num_updates % max(1, trainer.log_every_n_steps) == 0:
            self.log("epsilon", self.guarantee().epsilon, prog_bar=True)  # accounting may take as long as a step
        if ends:
            self.trainer.should_stop = True

    def on_train_epoch_end(self) -> None:
        """Move the schedules that count epochs."""
        self._schedule("epoch")

    def on_fit_end(self) -> None:
        """The model is free for other uses."""
        self.private.close()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what a resumed run needs to know: public values only."""
        if self._held:
            checkpoint[_KEY] = self.private.state_dict()

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Keep it until the run is made."""
        if _KEY not in checkpoint:
            raise InvalidInput(
                "the checkpoint is not of a private training.", hint="resume from one of a PrivateModule"
            )
        self._loaded = checkpoint[_KEY]

    def _schedule(self, interval: str) -> None:
        """Step the schedules of this interval, as Lightning does where it optimizes by itself."""
        count = self.private.num_updates if interval == "step" else self.current_epoch + 1
        for config in self.trainer.lr_scheduler_configs:
            scheduler: Any = config.scheduler
            if config.interval == interval and count % config.frequency == 0 and not config.reduce_on_plateau:
                scheduler.step()
