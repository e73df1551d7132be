"""PrivateModule in a real Trainer of Lightning, and a model that Fabric has set up."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import Ledger, Mechanism, PrivateRun, make_private, read_ledger
from noisette.encoders import L2
from noisette.errors import InvalidInput, MechanismMismatch
from noisette.integrations.lightning import PrivateModule
from noisette.noise import Gaussian
from tests.support.helpers import refused

X, Y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 2


class Net(PrivateModule):
    """Logistic regression; steps are 25, ten an epoch."""

    delta = 1e-3

    def __init__(self, folder: Path, steps: int = 25) -> None:
        super().__init__()
        self.net, self.folder, self.steps = nn.Linear(4, 2), folder, steps

    def configure_private(self) -> PrivateRun:
        mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=self.steps)
        self.book = Ledger(self.folder / "ledger.jsonl", "test")
        return make_private(self.net, nn.CrossEntropyLoss(), (X, Y), mechanism, ledger=self.book)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        halved = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return [optimizer], [{"scheduler": halved, "interval": "epoch"}]

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))


def fitted(module: Net, checkpoint: str | None = None, **given: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options: dict[str, Any] = {"max_epochs": 10, "default_root_dir": module.folder, **quiet, **given}
    loader = options.pop("loader", None)
    public = DataLoader(TensorDataset(X, Y), batch_size=50)
    try:
        with warnings.catch_warnings():
            for said in (".*LeafSpec", ".*does not have many workers", "Checkpoint directory"):  # of Lightning
                warnings.filterwarnings("ignore", message=said)
            trainer = lightning.Trainer(**options)
            trainer.fit(module, loader, public, ckpt_path=checkpoint)
    finally:
        if hasattr(module, "book"):
            module.book.close()
    return trainer


def test_a_training_that_is_stopped_and_resumed(tmp_path: Path) -> None:
    first = Net(tmp_path)
    before = first.net.weight.detach().clone()
    stopped = fitted(first, max_epochs=2)
    assert first.private.num_updates == stopped.global_step == 20
    assert not torch.equal(first.net.weight, before)
    shown = stopped.callback_metrics
    assert set(shown) == {"epsilon", "val_loss"}
    assert float(shown["epsilon"]) == pytest.approx(first.guarantee().epsilon)
    first.net(X).sum().backward()  # the run was closed
    path = stopped.checkpoint_callback.best_model_path
    second = Net(tmp_path)
    ended = fitted(second, path)
    assert second.private.num_updates == ended.global_step == 25
    assert second.lr_schedulers().get_last_lr() == [0.0125]
    assert read_ledger(tmp_path / "ledger.jsonl").guarantee(1e-3) == second.guarantee()
    with refused(MechanismMismatch):
        fitted(Net(tmp_path, steps=30), path)


def test_the_last_step_ends_the_training(tmp_path: Path) -> None:
    module = Net(tmp_path, steps=3)
    assert fitted(module, limit_val_batches=0).global_step == 3
    assert module.private.steps_remaining == 0


class Backward(Net):
    def on_train_batch_end(self, *_: Any) -> None:
        self.manual_backward(self.net(X).sum())


class Other(Net):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (Backward, {}, "raw gradient"),
        (Other, {}, "over other parameters"),
        (Net, {"precision": "bf16-mixed"}, "scales or casts"),
    ],
)
def test_what_cannot_hold_is_refused(kind: type[Net], given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with refused(InvalidInput, match=told):
        fitted(kind(tmp_path), **given)


def test_a_loader_of_ones_own_is_refused(tmp_path: Path) -> None:
    with refused(InvalidInput, match="draws its own batches"):
        fitted(Net(tmp_path), loader=DataLoader(TensorDataset(X, Y)))


def test_a_model_that_fabric_has_set_up() -> None:
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    held = list(plain.parameters())
    model, optimizer = fabric.setup(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    before = [p.detach().clone() for p in held]
    private = make_private(
        model, nn.CrossEntropyLoss(), (X, Y), Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=2)
    )
    for _ in private:
        optimizer.step()
    assert private._gradients.path == "layers"
    assert all(p is q for p, q in zip(plain.parameters(), held, strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(held, before, strict=True))
    assert model(X).shape == (200, 2)
