"""The folder of a run: all that is needed to go on, to use the model, and to see what was promised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from noisette import data as datasets
from noisette import models
from noisette.account import Ledger, guarantee
from noisette.denoise import Denoiser
from noisette.errors import InvalidInput, MechanismMismatch
from noisette.gradients import Gradients
from noisette.mechanism import Mechanism
from noisette.recipes.recipe import Recipe
from noisette.spec import parse
from noisette.training import Trainer, accuracy, checkpoint, make_private

__all__ = ["OpenRun", "Point", "load", "new_folder", "read", "reopen", "start"]


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl: public values only, unless the user asked for private ones."""

    updates: int
    paid: int
    total: int
    epsilon: float
    accuracy: float | None
    train_loss: float | None = None


class OpenRun:
    """One process's part of a run in its folder; iterate over `points` to train.

    `unsafe` shows the training loss, which is private: every result is stamped with it. So is `reproducible`, which
    says that an earlier process of the run had a seed.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        *,
        data_root: Path | None = None,
        device: str = "cpu",
        seed: int | None = None,
        shared: Path | None = None,
        unsafe: bool = False,
        reproducible: bool = False,
    ) -> None:
        self.folder, self.recipe, self.unsafe = folder, recipe, unsafe
        self.reproducible = reproducible or seed is not None
        _check_device(device)
        self.data = datasets.load(recipe.data, data_root)
        self._inputs, self._targets = self.data.train_inputs.to(device), self.data.train_targets.to(device)
        model = models.build(
            recipe.model, self.data.shape, self.data.classes, seed=recipe.model_seed, **recipe.model_options
        ).to(device)
        self._loss = nn.CrossEntropyLoss()
        self.mechanism = _mechanism(folder, recipe, Gradients(model, self._loss).dim, len(self._inputs))
        self._books: list[Ledger] = []
        try:
            for path in (folder / "ledger.jsonl", shared):
                if path is not None:
                    self._books.append(Ledger(path, data=recipe.data))
            _check_own(self._books[0], self.mechanism)
            self.private = make_private(
                model,
                self._loss,
                self._inputs,
                self._targets,
                self.mechanism,
                denoiser=parse(recipe.denoiser, Denoiser),
                ledger=self._books,
                chunk=recipe.chunk,
                seed=seed,
            )
        except BaseException:
            self.close()
            raise
        optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
        total = self.private.total
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, total))
        self.trainer = Trainer(model, self.private, optimizer, scheduler, averaging=recipe.averaging)

    def resume(self) -> int:
        """Go on from the checkpoint, where there is one; the steps paid since then, which stay paid but are lost."""
        if (self.folder / "checkpoint.pt").exists():
            self.trainer.load(self.folder / "checkpoint.pt")
        return self.private.paid - self.private.updates

    def points(self) -> Iterator[Point | None]:
        """Train to the end of the budget: a point at every evaluation, None after every other step."""
        every = self.recipe.every(self.private.total)
        if not self.private.left and not self._finished():
            yield self._evaluate()  # cut off after its last payment: only the results are missing
        for progress in self.trainer.run():
            yield self._evaluate() if progress.updates % every == 0 or not self.private.left else None

    def _finished(self) -> bool:
        lines = self._metrics().splitlines()
        return bool(lines) and bool(json.loads(lines[-1])["paid"] == self.private.total)

    def _evaluate(self) -> Point:
        point = self._point()
        line = json.dumps({key: value for key, value in vars(point).items() if value is not None}) + "\n"
        self.save()  # first, so that a kill between the two leaves no point that is reached again
        checkpoint.write(self.folder / "metrics.jsonl", (self._metrics() + line).encode())
        return point

    def _metrics(self) -> str:
        path = self.folder / "metrics.jsonl"
        return path.read_text() if path.exists() else ""

    def save(self) -> None:
        """Write the checkpoint, the model and the guarantee as they are now."""
        self.trainer.save(self.folder / "checkpoint.pt")
        checkpoint.save(self.folder / "model.pt", self.trainer.evaluated.state_dict())
        promise = self.private.guarantee(self.recipe.delta).to_dict()
        promise |= {"mechanism": repr(self.mechanism), "paid": self.private.paid, "steps": self.private.total}
        if self.reproducible:
            promise["reproducible"] = "not for release"
        if self.unsafe:
            promise["unsafe"] = "private metrics were shown: the guarantee does not cover them"
        if len(self._books) > 1:
            promise["ledger_epsilon"] = guarantee(self._books[1].run(), self.recipe.delta).epsilon
        checkpoint.write(self.folder / "guarantee.json", (json.dumps(promise, indent=2) + "\n").encode())

    def close(self) -> None:
        """Give the ledgers back."""
        for book in self._books:
            book.close()

    def _point(self) -> Point:
        test = (self.data.test_inputs, self.data.test_targets)
        device = self._inputs.device
        right = accuracy(self.trainer.evaluated, test[0].to(device), test[1].to(device)) if len(test[0]) else None
        loss = None
        if self.unsafe:
            with torch.no_grad():
                loss = float(self._loss(self.trainer.model(self._inputs), self._targets))
        epsilon = self.private.guarantee(self.recipe.delta).epsilon
        return Point(self.private.updates, self.private.paid, self.private.total, epsilon, right, loss)


def _mechanism(folder: Path, recipe: Recipe, dim: int, examples: int) -> Mechanism:
    """The mechanism of a run, decided once: a resumed run reads it back, so that calibration cannot drift."""
    path = folder / "mechanism.toml"
    if path.exists():
        return Mechanism.from_toml(path.read_text())
    mechanism = recipe.mechanism(dim, examples)
    guarantee(mechanism, recipe.delta, examples=examples)  # refuse what cannot be accounted before anything is spent
    checkpoint.write(path, mechanism.to_toml().encode())
    return mechanism


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InvalidInput(
            f"torch cannot compute on {device!r} here.", hint="use cpu, or cuda where there is one"
        ) from None


def _check_own(ledger: Ledger, mechanism: Mechanism) -> None:
    """A run's own ledger holds its own steps only; else the guarantee of the run would leave some of them out."""
    if ledger.spent(mechanism) != sum(one.steps for one in ledger.run()):
        raise MechanismMismatch(
            f"the ledger {ledger.path} has paid for another mechanism than {mechanism.hash}.",
            hint="restore the run's mechanism.toml and ledger.jsonl",
        )


def new_folder(root: Path, name: str) -> Path:
    """A new folder NAME-0001, NAME-0002, ... below `root`."""
    for number in range(1, 10000):
        folder = root / f"{name}-{number:04d}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise InvalidInput(f"{root} holds 9,999 runs of {name}.", hint="move some of them away")


def start(root: Path, recipe: Recipe, **options: Any) -> OpenRun:
    """A new run of `recipe` in a folder of its own below `root`."""
    folder = new_folder(root, recipe.name)
    try:
        opened = OpenRun(folder, recipe, **options)
    except BaseException:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()  # nothing was spent
        raise
    settings: dict[str, Any] = {
        key: str(value) for key, value in options.items() if value is not None and key != "seed"
    }
    settings |= {"shape": opened.data.shape, "classes": opened.data.classes, "reproducible": opened.reproducible}
    checkpoint.write(folder / "recipe.toml", recipe.to_toml().encode())
    checkpoint.write(folder / "settings.json", json.dumps(settings).encode())
    return opened


def reopen(folder: Path, **options: Any) -> OpenRun:
    """The run in `folder`, to be gone on with."""
    recipe = Recipe.from_toml(read(folder, "recipe.toml"))
    if not (folder / "ledger.jsonl").exists():
        Ledger(folder / "ledger.jsonl", must_exist=True)  # says why it cannot go on
    settings = json.loads(read(folder, "settings.json"))
    known: dict[str, Any] = {"device": settings.get("device", "cpu"), "unsafe": settings.get("unsafe") == "True"}
    known["reproducible"] = settings["reproducible"]
    known |= {key: Path(settings[key]) for key in ("data_root", "shared") if key in settings}
    return OpenRun(folder, recipe, **(known | options))


def read(folder: Path, name: str) -> str:
    """The text of one of a run's files."""
    try:
        return (folder / name).read_text()
    except OSError:
        raise InvalidInput(f"{folder} has no {name}.", hint="give the folder of a run, like runs/digits-0001") from None


def load(folder: str | Path) -> nn.Module:
    """The trained module of a run, in evaluation mode: post-processing of what was released, so free to use.

    Example: ``model = noisette.load("runs/digits-0001")``.
    """
    place = Path(folder)
    recipe = Recipe.from_toml(read(place, "recipe.toml"))
    settings = json.loads(read(place, "settings.json"))
    model = models.build(
        recipe.model, tuple(settings["shape"]), settings["classes"], seed=recipe.model_seed, **recipe.model_options
    )
    model.load_state_dict(checkpoint.load(place / "model.pt"))
    return model.eval()
