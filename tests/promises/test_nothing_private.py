"""P14 and P7: what a run shows depends on its releases alone, and no batch is treated unlike another.

The size of the data set is public, so a neighbour has one example replaced: by another one, or by one of NaN, whose
gradient counts as zero, so that it is as good as gone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisette import Mechanism, Private, Released, make_private
from noisette.accounting import Ledger, ledger
from noisette.app import datasets
from noisette.app.commands import train
from noisette.app.datasets import Dataset
from noisette.denoisers import Denoiser
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import PoissonSampler, Trainer, private_run
from tests.support.command import Command, Outcome
from tests.support.gradient_models import Recurrent
from tests.support.tiny_run import gaussian, trainer_of

EXAMPLES = 50
OPTIONS = (
    "train", "--data", "mine", "--model", "mlp", "--model-option", "hidden=4,", "--noise", "Gaussian(scale=8.0)",
    "--steps", "8", "--evaluations", "4", "--batch", "10", "--denoiser", "LowPass()", "--averaging", "0.5",
)  # fmt: skip


def _data(seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    parts = [(rng.random((n, 1, 4, 4)).astype(np.float32), rng.integers(3, size=n)) for n in (EXAMPLES, 20)]
    return Dataset.from_arrays("mine", *parts, classes=3)


def _neighbour(data: Dataset, row: Tensor, label: int, slot: int = 0) -> Dataset:
    inputs, targets = data.train_inputs.clone(), data.train_targets.clone()
    inputs[slot], targets[slot] = row, label
    return Dataset(data.name, inputs, targets, data.test_inputs, data.test_targets, data.classes)


class _Stage:
    """Runs the command on a data set, with a stopped clock and, from the second run on, the releases of the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        self._patch, self._path = monkeypatch, tmp_path
        self._command, self._release = Command(monkeypatch, capsys), private_run.release
        self._kept: list[Released] = []
        self._shown = 0
        monkeypatch.setattr(ledger, "_now", lambda: "2000-01-01T00:00:00Z")
        monkeypatch.setattr(ledger, "_identity", lambda: "0" * 16)
        # the command's own clock: with that of all, whoever waits for a process would wait for ever
        monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: 0.0))

    def __call__(self, data: Dataset, *options: str) -> tuple[Outcome, dict[str, bytes]]:
        self._shown += 1
        place = self._path / str(self._shown)
        place.mkdir()
        self._patch.chdir(place)
        self._patch.setattr(datasets, "load", lambda *_: data)
        self._patch.setattr(private_run, "release", self._next if self._kept else self._first)
        self._turn = iter(list(self._kept))
        done = self._command(*OPTIONS, *options)
        assert done.code == 0, done.err
        return done, {str(p.relative_to(place)): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}

    def _first(self, mechanism: Mechanism, total: Private, **options: Any) -> Released:
        self._kept.append(self._release(mechanism, total, **options))
        return self._kept[-1]

    def _next(self, *_: object, **__: object) -> Released:
        return next(self._turn)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> _Stage:
    return _Stage(monkeypatch, capsys, tmp_path)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["for people", "json"])
def test_neighbours_cannot_be_told_apart(stage: _Stage, options: tuple[str, ...]) -> None:
    data = _data()
    others = [
        _neighbour(data, torch.full((1, 4, 4), torch.nan), 0),
        _neighbour(data, torch.full((1, 4, 4), 1e30), 2),
        _neighbour(data, torch.zeros(1, 4, 4), 1),
    ]
    stage(data, *options)  # keeps the releases
    shown, files = stage(data, *options)
    assert len(files) == 10
    for other in others:
        told, left = stage(other, *options)
        assert told == shown
        assert left.keys() == files.keys()
        assert [name for name in files if left[name] != files[name]] == []


def test_a_training_loss_is_seen(stage: _Stage) -> None:
    """The unsafe option stands in for a leak: the comparison above must see it."""
    data = _data()
    stage(data)
    _, files = stage(data, "--unsafe-show-private-metrics")
    seen = set()
    for label in range(3):  # the noise is fresh, and a unit that it switched off may hide one of them
        _, left = stage(_neighbour(data, torch.full((1, 4, 4), 9.0), label), "--unsafe-show-private-metrics")
        seen |= {name for name in files if left[name] != files[name]}
    assert seen == {"runs/digits-0001/metrics.jsonl"}


class _Telling(torch.nn.Module):
    """Warns, in the loop that it needs, of inputs that are large, and of sequences that are long."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = torch.nn.Linear(3, 5), torch.nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.abs().max()) > 50 or x.shape[1] > 5:
            warnings.warn("this example is unusual", UserWarning, stacklevel=1)
        return self.out(torch.tanh(self.inside(x)).mean(dim=1))


class _Sequences:
    """Warns of an example when it is read."""

    def __init__(self, examples: list[Tensor]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        found = self._examples[number]
        if found.shape[0] != 4:
            warnings.warn(f"example {number} has {len(found)} rows", UserWarning, stacklevel=1)
        return found, number % 3


@pytest.mark.parametrize("model", [_Telling, lambda: Recurrent(torch.nn.GRU(3, 5, batch_first=True), 5)])
def test_examples_of_other_shapes_cannot_be_told_apart(
    model: Callable[[], torch.nn.Module],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One example is replaced: by one of another length, of other values, or that only the loop can take."""
    monkeypatch.setattr(ledger, "_now", lambda: "2000-01-01T00:00:00Z")
    monkeypatch.setattr(ledger, "_identity", lambda: "0" * 16)
    honest, kept = private_run.release, list[Released]()
    usual = [torch.randn(4, 3, generator=torch.Generator().manual_seed(number)) for number in range(12)]
    others = [torch.randn(1, 3), torch.randn(4, 3) * 1e3, torch.randn(9, 3), torch.full((9, 3), torch.nan)]

    def shown(examples: list[Tensor], place: str) -> tuple[object, ...]:
        torch.manual_seed(0)
        mechanism = Mechanism(L2(), Gaussian(2.0), rate=0.999999, steps=6)
        net, file = model(), tmp_path / place / "ledger.jsonl"
        with warnings.catch_warnings(record=True) as said, Ledger(file, data="sequences") as book:
            warnings.simplefilter("always")
            run = make_private(net, torch.nn.CrossEntropyLoss(), _Sequences(examples), mechanism, ledger=book)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in run:
                optimizer.step()
        words = [str(one.message) for one in said], *capfd.readouterr(), caplog.text
        return words, run.flags, run._gradients.path, file.read_bytes(), [p.tolist() for p in net.parameters()]

    def first(*args: Any, **options: Any) -> Released:
        kept.append(honest(*args, **options))
        return kept[-1]

    monkeypatch.setattr(private_run, "release", first)
    shown(usual, "first")
    found = []
    for number, one in enumerate([usual[-1], *others]):
        again = iter(kept)
        monkeypatch.setattr(private_run, "release", lambda *_, again=again, **__: next(again))
        found.append(shown([*usual[:-1], one], str(number)))
    assert found == found[:1] * len(found)


# -- P7 ----------------------------------------------------------------------------------------------------------------


def _trace(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> list[tuple[str, Any]]:
    """What a run did, in order: payments, releases, denoisings and updates with their shapes."""
    events: list[tuple[str, Any]] = []

    def watch(owner: Any, name: str, shape: Callable[..., Any]) -> None:
        honest = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            out = honest(*args, **options)
            events.append((name, shape(*args)))
            return out

        patch.setattr(owner, name, watched)

    with monkeypatch.context() as patch:
        watch(ledger.Ledger, "spend", lambda _, mechanism, steps: steps)
        watch(private_run, "release", lambda _, total: total.dim)
        watch(Denoiser, "update", lambda _, released, state: (released.values.shape, sorted(state)))
        trainer.optimizer.register_step_post_hook(
            lambda *_: events.append(("update", [p.grad.shape for p in trainer.model.parameters()]))
        )
        for progress in trainer.run():
            events.append(("progress", progress))
    trainer.private._ledgers[0].close()
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
    return events


def test_empty_nan_and_full_batches_behave_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 3, dtype=torch.float64)
    y = torch.arange(40) % 3
    nan = x.clone()
    nan[2:] = torch.nan
    cases = {"usual": (x, 0.2), "empty": (x, 1e-12), "full": (x, 1.0), "nan": (nan, 1.0), "nan, usual": (nan, 0.2)}
    traces = {
        name: _trace(
            monkeypatch, trainer_of(gaussian(6, rate), ledger=tmp_path / name / "ledger.jsonl", data=(inputs, y))
        )
        for name, (inputs, rate) in cases.items()
    }
    assert len(traces["usual"]) == 6 * 5
    for name, trace in traces.items():
        assert trace == traces["usual"], name


@pytest.mark.parametrize("which", ["empty", "full", "all nan"])
def test_a_run_of_such_batches_logs_alike(
    stage: _Stage, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Same releases, so the same bytes, whatever the batches hold."""
    data = _data()
    stage(data)
    shown, files = stage(data)
    if which == "all nan":
        inputs = torch.full_like(data.train_inputs, torch.nan)
        inputs[:2] = data.train_inputs[:2]
        data = Dataset("mine", inputs, data.train_targets, data.test_inputs, data.test_targets, 3)
    else:
        batch = np.arange(0 if which == "empty" else EXAMPLES)
        monkeypatch.setattr(PoissonSampler, "draw", lambda _: batch)
    told, left = stage(data)
    assert told == shown
    assert left == files
    assert all(set(json.loads(line)) for line in left["runs/digits-0001/metrics.jsonl"].splitlines())
