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
from noisette.features import Progress
from noisette.gradients import Gradients
from noisette.mechanism import Guarantee, Mechanism
from noisette.recipes.inputs import Inputs, map_of
from noisette.recipes.launch import begun, launch
from noisette.recipes.recipe import Recipe
from noisette.spec import parse
from noisette.training import Ranks, Trainer, accuracy, checkpoint, make_private

__all__ = ["OpenRun", "Point", "load", "new_folder", "read", "reopen", "start"]


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl: public values only, unless the user asked for private ones."""

    updates: int
    paid: int
    total: int
    promise: Guarantee
    accuracy: float | None
    train_loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """What a line holds, for JSON."""
        told = {name: value for name, value in vars(self).items() if name != "promise" and value is not None}
        return told | {"epsilon": self.promise.epsilon, "stamps": list(self.promise.stamps)}


class OpenRun:
    """One process's part of a run in its folder; iterate over `points` to train.

    Of several processes that have joined, rank 0 reads and writes the folder and tells the others what is in it.

    `unsafe` shows the training loss, which is private: every result is stamped with it. So is `reproducible`, which
    says that an earlier process of the run had a seed. `people` is whom the ledgers belong to, where that is not the
    data set by its own name. A run that goes on (`again`) has its ledgers already.
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
        people: str | None = None,
        unsafe: bool = False,
        reproducible: bool = False,
        again: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.folder, self.recipe, self.unsafe, self.ranks = folder, recipe, unsafe, Ranks.current()
        self.people = people or datasets.people(recipe.data)
        _check_device(device)
        self.data = datasets.load(recipe.data, data_root)
        self.inputs = Inputs.of(recipe, self.data, folder, progress)
        self._inputs, self._targets = self.inputs.train.to(device), self.data.train_targets.to(device)
        model = models.build(
            recipe.model, self.inputs.shape, self.data.classes, seed=recipe.model_seed, **recipe.model_options
        ).to(device)
        self._loss = nn.CrossEntropyLoss()
        dim = Gradients(model, self._loss).dim
        plan = _plan(folder, recipe, dim, len(self._inputs)) if self.ranks.first else ""
        self.mechanism = Mechanism.from_toml(self.ranks.from_first(plan.encode()).decode())
        self._books: list[Ledger] = []
        try:
            if self.ranks.first:
                for path in (folder / "ledger.jsonl", shared):
                    if path is not None:
                        self._books.append(Ledger(path, data=self.people, must_exist=again))
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
        self.private.stamp(*["reproducible"] * reproducible, *["unsafe"] * unsafe)
        optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
        total = self.private.total
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, total))
        self.trainer = Trainer(model, self.private, optimizer, scheduler, averaging=recipe.averaging)

    def resume(self) -> int:
        """Go on from the checkpoint, where there is one; the steps paid since then, which stay paid but are lost."""
        path = self.folder / "checkpoint.pt"
        data = self.ranks.from_first(path.read_bytes() if self.ranks.first and path.exists() else b"")
        if data:
            self.trainer.restore(checkpoint.parse(data, path), str(path))
        return self.private.paid - self.private.updates

    def points(self) -> Iterator[Point | None]:
        """Train to the end of the budget: a point at every evaluation, None after every other step.

        Of several processes rank 0 evaluates, and the others have no points.
        """
        every = self.recipe.every(self.private.total)
        if not self.private.left and not self.complete:
            yield self._evaluate()  # cut off after its last payment: only the results are missing
        for progress in self.trainer.run():
            yield self._evaluate() if progress.updates % every == 0 or not self.private.left else None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do: all steps are taken and their results written, as far as rank 0 can see."""
        lines = self._metrics().splitlines()
        return not self.private.left and bool(lines) and bool(json.loads(lines[-1])["paid"] == self.private.total)

    def _evaluate(self) -> Point | None:
        if not self.ranks.first:
            return None
        point = self._point()
        line = json.dumps(point.to_dict()) + "\n"
        self.save()  # first, so that a kill between the two leaves no point that is reached again
        checkpoint.write(self.folder / "metrics.jsonl", (self._metrics() + line).encode())
        return point

    def _metrics(self) -> str:
        path = self.folder / "metrics.jsonl"
        return path.read_text() if path.exists() else ""

    def save(self) -> None:
        """Write the checkpoint, the model and the guarantee as they are now; rank 0 does, alone."""
        if not self.ranks.first:
            return
        self.trainer.save(self.folder / "checkpoint.pt")
        checkpoint.save(self.folder / "model.pt", self.trainer.evaluated.state_dict())
        promise = self.promise.to_dict()
        promise |= {"mechanism": repr(self.mechanism), "paid": self.private.paid, "steps": self.private.total}
        if len(self._books) > 1:
            all_runs = self._books[1].guarantee(self.recipe.delta)
            promise |= {"ledger_epsilon": all_runs.epsilon, "ledger_stamps": list(all_runs.stamps)}
        checkpoint.write(self.folder / "guarantee.json", (json.dumps(promise, indent=2) + "\n").encode())

    @property
    def promise(self) -> Guarantee:
        """What the steps paid so far promise."""
        return self.private.guarantee(self.recipe.delta)

    @property
    def cut(self) -> list[Ledger]:
        """Ledgers of this run in which a line was cut short."""
        return [book for book in self._books if book.cut is not None]

    def close(self) -> None:
        """Give the ledgers back."""
        for book in self._books:
            book.close()

    def _point(self) -> Point:
        test = (self.inputs.test, self.data.test_targets)
        device = self._inputs.device
        right = accuracy(self.trainer.evaluated, test[0].to(device), test[1].to(device)) if len(test[0]) else None
        loss = None
        if self.unsafe:
            with torch.no_grad():
                loss = float(self._loss(self.trainer.model(self._inputs), self._targets))
        return Point(self.private.updates, self.private.paid, self.private.total, self.promise, right, loss)


def _plan(folder: Path, recipe: Recipe, dim: int, examples: int) -> str:
    """The mechanism of a run as TOML, decided once: a resumed run reads it back, so that calibration cannot drift."""
    path = folder / "mechanism.toml"
    if path.exists():
        return path.read_text()
    mechanism = recipe.mechanism(dim, examples)
    guarantee(mechanism, recipe.delta, examples=examples)  # refuse what cannot be accounted before anything is spent
    checkpoint.write(path, mechanism.to_toml().encode())
    return mechanism.to_toml()


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
    """A new run of `recipe` in a folder of its own below `root`.

    In processes that torchrun has started again it is the run that they had begun, gone on with from its checkpoint.
    """
    ranks = Ranks.current()
    old = begun(root, recipe) if ranks.first else None
    folder = old or (new_folder(root, recipe.name) if ranks.first else root)
    told = json.dumps([str(folder), old is not None]).encode() if ranks.first else b""
    name, again = json.loads(ranks.from_first(told))
    folder = Path(name)
    if again:
        opened = reopen(folder, progress=options.get("progress"))
        opened.resume()
        return opened
    try:
        opened = OpenRun(folder, recipe, **options)
    except BaseException:
        if ranks.first:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()  # nothing was spent
        raise
    if ranks.first:
        _describe(opened, options)
    return opened


def _describe(opened: OpenRun, options: dict[str, Any]) -> None:
    settings: dict[str, Any] = {
        key: str(value) for key, value in options.items() if value is not None and key not in ("seed", "progress")
    }
    settings |= {"shape": opened.data.shape, "classes": opened.data.classes, "people": opened.people}
    settings["reproducible"] = opened.private.reproducible
    if (name := launch()) is not None:
        settings["launch"] = name
    opened.inputs.save(opened.folder)
    checkpoint.write(opened.folder / "recipe.toml", opened.recipe.to_toml().encode())
    checkpoint.write(opened.folder / "settings.json", json.dumps(settings).encode())


def reopen(folder: Path, **options: Any) -> OpenRun:
    """The run in `folder`, to be gone on with."""
    ranks, told = Ranks.current(), b""
    if ranks.first:
        told = json.dumps([read(folder, "recipe.toml"), read(folder, "settings.json")]).encode()
    texts = json.loads(ranks.from_first(told))
    recipe, settings = Recipe.from_toml(texts[0]), json.loads(texts[1])
    known: dict[str, Any] = {"device": settings.get("device", "cpu"), "unsafe": settings.get("unsafe") == "True"}
    known |= {"reproducible": settings["reproducible"], "people": settings["people"], "again": True}
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
    fixed = map_of(recipe, tuple(settings["shape"]), place) if recipe.features else None
    shape = tuple(settings["shape"]) if fixed is None else fixed.shape
    model = models.build(recipe.model, shape, settings["classes"], seed=recipe.model_seed, **recipe.model_options)
    model.load_state_dict(checkpoint.load(place / "model.pt"))
    return (model if fixed is None else nn.Sequential(fixed, model)).eval()
