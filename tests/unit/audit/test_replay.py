"""The replay check sees what a training shows of its data beside the releases; each leak here is one people write."""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Ledger, Mechanism, PrivateRun, Trainer, make_private
from noisette.audit import replay
from noisette.denoisers import LowPass
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import PoissonSampler
from tests.support.helpers import refused

CLAIM = Mechanism(L2(dim=8), Gaussian(scale=1.0), rate=0.3, steps=6)
Data = tuple[Tensor, Tensor]


def _data(first: float) -> Data:
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    x[0] = first
    return x, torch.arange(30) % 2


ONE, OTHER, NAN = _data(0.0), _data(50.0), _data(float("nan"))


def _private(model: nn.Module, data: Data, **options: Any) -> PrivateRun:
    return make_private(model, nn.CrossEntropyLoss(), data, CLAIM, **options)


def _honest(data: Data) -> nn.Module:
    """With a ledger, a denoiser, momentum, output, a log, a checkpoint and a clock."""
    model, began = nn.Linear(3, 2), time.monotonic()
    with Ledger("ledger.jsonl", data="demo") as ledger:
        private = _private(model, data, ledger=ledger, denoiser=LowPass())
        trainer = Trainer(private, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))
        for progress in trainer.run():
            numbers = random.random(), np.random.random(), time.monotonic() - began  # noqa: NPY002
            sys.stdout.write(f"{progress} {numbers}\n")
            logging.getLogger("demo").info("step %d", progress.updates)
        trainer.save(Path("checkpoint.pt"))
    return model


@pytest.mark.parametrize("neighbour", [OTHER, NAN], ids=["another", "nan"])
def test_an_honest_training_passes(neighbour: Data) -> None:
    found = replay(_honest, ONE, neighbour)
    assert found.identical, found.differences
    assert found.releases == 6


def test_what_else_is_in_memory_changes_no_path() -> None:
    """Without an optimizer, whose absence is looked for; runs, optimizers and other objects of others come and stay."""
    others = list[Any]()

    def train(data: Data) -> None:
        private = _private(nn.Linear(3, 2), data)
        private.step()
        others.extend((private, torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1), [[] for _ in range(9)]))
        for _ in _private(nn.Linear(3, 2), data):
            pass

    assert replay(train, ONE, OTHER).identical


def _prints_the_loss(data: Data) -> None:
    model = nn.Linear(3, 2)
    for _ in _private(model, data):
        with torch.no_grad():
            sys.stdout.write(f"loss {nn.functional.cross_entropy(model(data[0]), data[1])}\n")


def _logs_a_norm(data: Data) -> None:
    for _ in _private(nn.Linear(3, 2), data):
        logging.getLogger("mine").debug("norm %s", data[0].norm())


def _stops_early(data: Data) -> None:
    for _ in _private(nn.Linear(3, 2), data):
        if data[0].max() > 10:
            break


def _goes_on(data: Data) -> None:
    private = _private(nn.Linear(3, 2), data)
    for _ in range(3 + 2 * int(data[0].max() > 10)):
        private.step()


def _writes_a_file(data: Data) -> None:
    for _ in _private(nn.Linear(3, 2), data):
        Path("runs").mkdir(exist_ok=True)
        Path("runs/size.txt").write_text(str(data[0].abs().max()))


def _returns_it(data: Data) -> dict[str, Any]:
    for _ in _private(nn.Linear(3, 2), data):
        pass
    return {"steps": [6, data[0].sum()]}


@pytest.mark.parametrize(
    ("train", "kind"),
    [
        (_prints_the_loss, "output"),
        (_logs_a_norm, "logs"),
        (_stops_early, "control flow"),
        (_goes_on, "control flow"),
        (_writes_a_file, "files: runs/size.txt"),
        (_returns_it, "result"),
    ],
)
def test_leaks_are_seen(train: Callable[[Data], Any], kind: str) -> None:
    assert replay(train, ONE, ONE).identical
    found = replay(train, ONE, OTHER)
    assert not found.identical
    assert any(difference.startswith(kind) for difference in found.differences), found.differences


def test_a_leak_inside_the_library_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient left as it is when the batch is empty: another path after the release."""
    honest = PrivateRun._encode_batch_sum

    def marked(self: Any, mechanism: Mechanism) -> Any:
        total = honest(self, mechanism)
        if not total.unsafe_values().any():
            self.num_updates += 0.5
        return total

    monkeypatch.setattr(PrivateRun, "_encode_batch_sum", marked)
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: np.arange(1))
    found = replay(lambda data: [sys.stdout.write(f"{step}\n") for step in _private(nn.Linear(3, 2), data)], ONE, NAN)
    assert not found.identical


def test_everything_is_put_back() -> None:
    before = time.monotonic, random.getstate(), torch.random.get_rng_state(), Path.cwd(), logging.getLogger().level
    with pytest.raises(ZeroDivisionError):
        replay(lambda data: 1 / 0, ONE, OTHER)
    after = time.monotonic, random.getstate(), torch.random.get_rng_state(), Path.cwd(), logging.getLogger().level
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    assert before[3:] == after[3:]


def test_errors() -> None:
    with refused(match="released nothing"):
        replay(lambda data: None, ONE, OTHER)
    count = iter(range(100))

    def unsteady(data: Data) -> None:
        sys.stdout.write(str(next(count)))
        _goes_on(data)

    with refused(match="two runs on the same data differ"):
        replay(unsteady, ONE, OTHER)
