"""A run that is open: it trains, evaluates and writes its results into its folder."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from noisette import _io
from noisette.accounting import Ledger, guarantee, guarantees
from noisette.app.features import Progress
from noisette.app.recipes.recipe import Recipe
from noisette.app.runs import metrics
from noisette.app.runs.build import RunBuilder
from noisette.app.runs.inputs import ModelInputs
from noisette.app.runs.metrics import Point
from noisette.app.runs.run_settings import Settings
from noisette.errors import InvalidInput, MechanismMismatch
from noisette.mechanism import Guarantee, Mechanism
from noisette.training import Processes, answers

__all__ = ["OpenRun", "check_device"]

_PARTS = ("noisette", "numpy", "scipy", "torch")
"""Packages that epsilon was computed with, and the gradients; their versions are told with it."""
_AT_ONCE = 20
"""Evaluations whose epsilons are computed together: one by one they take longer than the steps of a small run."""


class OpenRun:
    """One process's part of a run in its folder; iterate over `points` to train.

    Of several processes that have joined, process 0 reads and writes the folder and tells the others what is in it.

    The folder holds the recipe and the settings already. Where these say that the run is not set up, its plan, its
    ledgers and the map of its features are made here; else they have to be there.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        settings: Settings,
        *,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder, self.recipe, self.settings, self.processes = folder, recipe, settings, Processes.current()
        check_device(settings.device)
        root = Path(settings.data_root) if settings.data_root is not None else None
        self.seen = seen = ModelInputs.of(recipe, root, folder if settings.ready else None, progress)
        self.assembly = RunBuilder(recipe, seen.data, settings.device)
        plan = _plan(folder, self.assembly) if self.processes.is_main else ""
        with _io.naming(folder / "mechanism.toml"):
            self.mechanism = Mechanism.from_toml(self.processes.broadcast_bytes(plan.encode()).decode())
        if self.processes.is_main:  # what cannot be accounted is refused before anything is spent
            guarantee(self.mechanism, recipe.delta, examples=self.examples)
        self._blocks = 0, 0, 0
        self._promises: dict[int, Guarantee] = {}
        self._books: list[Ledger] = []
        try:
            if self.processes.is_main:
                for path in (folder / "ledger.jsonl", settings.shared):
                    if path is not None:
                        self._books.append(Ledger(path, data=settings.people, must_exist=settings.ready))
                _check_own(self._books[0], self.mechanism)
                for book in self._books:  # before the first of them is paid, and the run is there for good
                    book.check(self.mechanism)
            self.trainer = self.assembly.trainer(self.mechanism, ledgers=self._books, seed=seed)
            self.private = self.trainer.private
            self.private.stamp(*["reproducible"] * settings.reproducible, *["unsafe"] * settings.unsafe)
            if self.processes.is_main and not settings.ready:
                seen.save(folder)
                self.settings = replace(settings, shape=seen.shape, classes=seen.data.classes, labels=seen.data.labels)
                _io.write(folder / "settings.json", self.settings.to_json().encode())
        except BaseException:
            self.close()
            raise

    @property
    def examples(self) -> int:
        """The number of training examples, or of units where these are drawn, which is public."""
        return self.assembly.data.sampled

    def resume(self) -> int:
        """Go on from the checkpoint, where there is one; the steps paid since then, which stay paid but are lost."""
        path = self.folder / "checkpoint.pt"
        try:
            there = self.processes.is_main and path.exists()
            if told := self.processes.broadcast_bytes(b"+" + _io.raw(path) if there else b""):
                self.trainer.restore(_io.parse(told[1:], path), path)
        except BaseException:
            self.close()
            raise
        return self.private.steps_paid - self.private.num_updates

    def points(self) -> Iterator[Point | None]:
        """Train to the end of the budget: a point at every evaluation, None after every other step.

        Of several processes, number 0 evaluates, and the others have no points.
        """
        every = self.recipe.every(self.private.total)
        if not self.private.steps_remaining and not self.complete:
            yield self._evaluate()  # cut off after its last payment: only the results are missing
        updates, paid = self.private.num_updates, self.private.steps_paid
        for progress in self.trainer.run():
            if progress.updates == updates + 1:  # steps are paid in blocks, and this was the first of one
                self._blocks = updates, paid, self.private.steps_paid - paid
            yield self._evaluate() if progress.updates % every == 0 or not self.private.steps_remaining else None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do: all steps are taken and their results written, as far as process 0 can see."""
        found = metrics.read(self.folder)
        return not self.private.steps_remaining and bool(found) and found[-1].paid == self.private.total

    def _evaluate(self) -> Point | None:
        if not self.processes.is_main:
            return None
        point, path = self._point(), self.folder / "metrics.jsonl"
        before = _io.raw(path) if path.exists() else b""
        self.save()  # first, so that a kill between the two leaves no point that is reached again
        _io.write(path, before + point.line().encode())
        return point

    def save(self) -> None:
        """Write the checkpoint, the model and the guarantee as they are now; process 0 does it, alone."""
        if not self.processes.is_main:
            return
        self.trainer.save(self.folder / "checkpoint.pt")
        weights = self.trainer.evaluated.state_dict()
        _io.save(self.folder / "model.pt", weights)
        # copies, because the format has no tied weights; no code can hide in it, and tools of every kind read it
        copies = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
        _io.write(self.folder / "model.safetensors", safetensors.torch.save(copies))
        promise = self.guarantee.to_dict()
        promise |= {"mechanism": repr(self.mechanism), "paid": self.private.steps_paid, "steps": self.private.total}
        promise |= {"examples": self.examples, "test": self._test()}
        promise |= {"versions": {name: importlib.metadata.version(name) for name in _PARTS}}
        if len(self._books) > 1:
            all_runs = self._books[1].guarantee(self.recipe.delta)
            promise |= {"ledger_epsilon": all_runs.epsilon, "ledger_flags": list(all_runs.flags)}
        _io.write(self.folder / "guarantee.json", (json.dumps(promise, indent=2) + "\n").encode())

    @property
    def guarantee(self) -> Guarantee:
        """What the steps paid so far promise."""
        paid = self.private.steps_paid
        if paid not in self._promises and paid in (coming := self._coming()):
            self._promises = guarantees(self.mechanism, coming, self.recipe.delta, examples=self.examples)
        if paid in self._promises:
            return self._promises[paid].with_flags(*self.private.flags)
        return self.private.guarantee(self.recipe.delta)

    def _coming(self) -> list[int]:
        """Steps that will be paid at each of the next evaluations, this one first; none where nothing tells.

        The last one of a run is left out: its promise is that of the plan.
        """
        updates, paid, block = self._blocks
        total, every, now = self.private.total, self.recipe.every(self.private.total), self.private.num_updates
        if block == 0 or now % every:
            return []
        counts = (paid + -(-(now + number * every - updates) // block) * block for number in range(_AT_ONCE))
        return [count for count in counts if count < total]

    @property
    def torn_ledgers(self) -> list[Ledger]:
        """Ledgers of this run in which a line was cut short."""
        return [book for book in self._books if book.torn_steps is not None]

    def close(self) -> None:
        """Give the ledgers back."""
        for book in self._books:
            book.close()

    def _test(self) -> dict[str, Any] | None:
        """How many test examples there are, none of which is protected, and how far one answer to all of them gets."""
        targets = self.assembly.test[1]
        return {"examples": len(targets), "constant": self.assembly.task.constant(targets)} if len(targets) else None

    def _point(self) -> Point:
        test, (inputs, targets) = self.assembly.test, self.assembly.train
        task, found = self.assembly.task, dict[str, Any]()
        if len(test[0]):
            right = task.scores(answers(self.trainer.evaluated, test[0]), test[1]).mean()
            found[task.measure] = task.measured(float(right))
        if self.settings.unsafe:
            with torch.no_grad():
                found["train_loss"] = float(task.loss(self.trainer.model(inputs), targets))
        promise = self.guarantee
        counts = self.private.num_updates, self.private.steps_paid, self.private.total
        return Point(*counts, promise.epsilon, promise.flags, **found)


def _plan(folder: Path, assembly: RunBuilder) -> str:
    """The mechanism of a run as TOML, decided once: a resumed run reads it back, so that calibration cannot drift."""
    path = folder / "mechanism.toml"
    if path.exists():
        return _io.text(path)
    plan = assembly.plan().to_toml()
    _io.write(path, plan.encode())
    return plan


def check_device(device: str) -> str:
    """`device`, where torch can compute on it."""
    try:
        torch.zeros(1, device=device).item()
    except Exception:  # noqa: BLE001 - every kind of device that is not there fails in its own way
        raise InvalidInput(
            f"torch cannot compute on {device!r} here.", hint="use cpu, or cuda where there is one"
        ) from None
    return device


def _check_own(ledger: Ledger, mechanism: Mechanism) -> None:
    """A run's own ledger holds its own steps only; else the guarantee of the run would leave some of them out."""
    if ledger.spent(mechanism) != sum(one.steps for one in ledger.mechanisms()):
        raise MechanismMismatch(
            f"the ledger {ledger.path} has paid for another mechanism than {mechanism.hash}.",
            hint="restore the run's mechanism.toml and ledger.jsonl",
        )
