"""Private training on the processes of Lightning Fabric: ``python examples/fabric.py`` (extra: ``noisette[fabric]``).

Fabric starts two processes and joins them; `make_private` takes the group as it finds it. The model is not given to
``fabric.setup``, which would average gradients over processes a second time. Takes about half a minute on two cores.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import nn

from noisette import Ledger, Mechanism, Trainer, make_private
from noisette.app.datasets import load
from noisette.encoders import Ranked
from noisette.noise import StudentT
from noisette.training import Processes, accuracy


def train(fabric: Fabric, folder: str) -> None:
    """One process's part of the run."""
    digits, processes = load("digits"), Processes.current()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(fabric.device)
    inputs, targets = digits.train_inputs.to(fabric.device), digits.train_targets.to(fabric.device)
    mechanism = Mechanism(Ranked(dim=650), StudentT(df=9, scale=2.5), rate=256 / len(inputs), steps=60)
    books = [Ledger(Path(folder) / "ledger.jsonl", data="digits")] if processes.first else []
    private = make_private(model, nn.CrossEntropyLoss(), (inputs, targets), mechanism, ledger=books)
    for _ in Trainer(private, torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.9)).run():
        pass
    right = accuracy(model, digits.test_inputs.to(fabric.device), digits.test_targets.to(fabric.device))
    promise = private.guarantee(delta=1e-5)  # the same on every process
    fabric.print(f"{processes.size} processes, test accuracy {right:.1%}, {promise}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn").launch(train, scratch)
