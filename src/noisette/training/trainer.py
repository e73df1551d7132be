"""The trainer: an optimizer around private gradients, with evaluation on public data, averaging and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from noisette import _io
from noisette._spec import whole
from noisette.denoisers import State
from noisette.errors import InvalidInput
from noisette.training.private_run import PrivateRun

__all__ = ["Progress", "Trainer", "accuracy", "answers", "check_same"]


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a step: all of it public."""

    updates: int
    paid: int
    total: int


class Trainer:
    """Runs an optimizer on private gradients: ``for progress in trainer.run(): ...``, so that bars and logs are yours.

    The model is that of the private run, and the optimizer has to be over its parameters. `averaging` above 0 keeps an
    exponential moving average of the weights with that factor, which `evaluated` returns.

    >>> from noisette import Mechanism, make_private
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> model, x, y = nn.Linear(4, 2), torch.randn(100, 4), torch.randint(2, (100,))
    >>> mechanism = Mechanism(L2(dim=10), Gaussian(scale=1.0), rate=0.1, steps=3)
    >>> private = make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism)
    >>> trainer = Trainer(private, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> [progress.updates for progress in trainer.run()]
    [1, 2, 3]
    """

    def __init__(
        self,
        private: PrivateRun,
        optimizer: Optimizer,
        scheduler: LRScheduler | None = None,
        *,
        averaging: float = 0.0,
    ) -> None:
        self.model, self.private, self.optimizer, self.scheduler = private.model, private, optimizer, scheduler
        check_same(private, optimizer)
        average = get_ema_multi_avg_fn(averaging)  # type: ignore[no-untyped-call]
        self._average = AveragedModel(self.model, multi_avg_fn=average) if averaging > 0 else None

    def run(self) -> Iterator[Progress]:
        """Take steps until the budget is spent."""
        for updates in self.private:
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            if self._average is not None:
                self._average.update_parameters(self.model)
            yield Progress(updates, self.private.steps_paid, self.private.total)

    @property
    def evaluated(self) -> nn.Module:
        """The model to use: the average of the weights where there is one, else the model itself."""
        return self._average.module if self._average is not None else self.model

    def save(self, path: str | Path) -> None:
        """Write a checkpoint, atomically. It holds no state of any generator: a resumed run draws fresh noise.

        Of several processes, number 0 writes it, without waiting for the others, which may be lost.
        """
        if self.private.processes.is_main:
            _io.save(path, self._state())

    def load(self, path: str | Path) -> None:
        """Go on from a checkpoint of the same mechanism and ledger; every process loads it."""
        self.restore(_io.load(path), path)

    def restore(self, state: Any, path: str | Path) -> None:
        """Go on from what `save` wrote, read already; `path` is for the error that it is something else."""
        fresh = self.private.state
        try:
            self.private.load_state_dict(state["private"])
            self._check_private(fresh)
            _io.fill(self.model, state["model"], path)
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
            if self._average is not None:
                _io.fill(self._average, state["average"], path)
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError):
            raise InvalidInput(
                f"{path} is not a checkpoint of this model.", hint="resume with the model and optimizer of the run"
            ) from None

    def _check_private(self, fresh: State) -> None:
        """Raise where what was loaded does not look like `fresh`, the state of a run that begins."""
        loaded = self.private.state_dict()
        whole("updates", loaded["updates"], least=0, most=self.private.steps_paid if loaded["ledgers"] else None)
        if not _io.alike(fresh, loaded["denoiser_state"]) or not isinstance(loaded["previous"], Tensor | None):
            raise TypeError

    def _state(self) -> dict[str, Any]:
        return {
            "private": self.private.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else {},
            "average": self._average.state_dict() if self._average is not None else {},
        }


def check_same(private: PrivateRun, *optimizers: Optimizer) -> None:
    """Raise where optimizers would move parameters that get no private gradient, or not move those that do."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    moved = {id(p) for group in groups for p in group["params"] if p.requires_grad}
    if moved != set(map(id, private.parameters)):
        raise InvalidInput(
            "the optimizer is over other parameters than those of the private run.",
            hint="make it from the same model, after freezing what should stay: SGD(model.parameters(), ...)",
        )


def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor, batch: int = 250) -> float:
    """The share of PUBLIC examples `inputs` (N, ...) whose class is right; a model in train mode stays in it.

    >>> accuracy(nn.Identity(), torch.eye(3), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    return int((answers(model, inputs, batch).argmax(dim=1) == targets).sum()) / len(inputs)


def answers(model: nn.Module, inputs: Tensor, batch: int = 250) -> Tensor:
    """The outputs (N, ...) of `model` for `inputs` (N, ...), `batch` at a time; a model in train mode stays in it.

    >>> answers(nn.Flatten(), torch.zeros(3, 2, 2)).shape
    torch.Size([3, 4])
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in torch.split(inputs, batch)])
    model.train(training)
    return outputs
