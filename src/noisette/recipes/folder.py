"""The folder of a run: all that is needed to go on, to use the model, and to see what was promised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from noisette import data as datasets
from noisette import files, models
from noisette.account import Ledger, guarantee
from noisette.denoise import Denoiser
from noisette.errors import InvalidInput, MechanismMismatch
from noisette.features import Progress
from noisette.gradients import Gradients
from noisette.mechanism import Guarantee, Mechanism
from noisette.recipes import points as metrics
from noisette.recipes.inputs import Inputs, map_of
from noisette.recipes.launch import begun, launch
from noisette.recipes.points import Point
from noisette.recipes.recipe import Recipe
from noisette.recipes.settings import Settings
from noisette.spec import parse
from noisette.training import Ranks, Trainer, accuracy, make_private

__all__ = ["OpenRun", "load", "new_folder", "reopen", "start"]

_WRITTEN = ("checkpoint.pt", "model.pt", "guarantee.json", "metrics.jsonl", "accuracy.png")
"""What a run writes again and again, beside its ledger."""


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
        with files.naming(folder / "mechanism.toml"):
            self.mechanism = Mechanism.from_toml(self.ranks.from_first(plan.encode()).decode())
        if self.ranks.first:  # what cannot be accounted is refused before anything is spent
            guarantee(self.mechanism, recipe.delta, examples=len(self._inputs))
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
                (self._inputs, self._targets),
                self.mechanism,
                denoiser=parse(recipe.denoiser, Denoiser),
                ledger=self._books,
                chunk=min(recipe.chunk, len(self._inputs)),
                seed=seed,
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
            total = self.private.total
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, total))
            self.trainer = Trainer(self.private, optimizer, scheduler, averaging=recipe.averaging)
        except BaseException:
            self.close()
            raise
        self.private.stamp(*["reproducible"] * reproducible, *["unsafe"] * unsafe)

    def resume(self) -> int:
        """Go on from the checkpoint, where there is one; the steps paid since then, which stay paid but are lost."""
        path = self.folder / "checkpoint.pt"
        try:
            there = self.ranks.first and path.exists()
            if told := self.ranks.from_first(b"+" + files.raw(path) if there else b""):
                self.trainer.restore(files.parse(told[1:], path), path)
        except BaseException:
            self.close()
            raise
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
        found = metrics.read(self.folder)
        return not self.private.left and bool(found) and found[-1].paid == self.private.total

    def _evaluate(self) -> Point | None:
        if not self.ranks.first:
            return None
        point, path = self._point(), self.folder / "metrics.jsonl"
        before = files.raw(path) if path.exists() else b""
        self.save()  # first, so that a kill between the two leaves no point that is reached again
        files.write(path, before + point.line().encode())
        return point

    def save(self) -> None:
        """Write the checkpoint, the model and the guarantee as they are now; rank 0 does, alone."""
        if not self.ranks.first:
            return
        self.trainer.save(self.folder / "checkpoint.pt")
        files.save(self.folder / "model.pt", self.trainer.evaluated.state_dict())
        promise = self.promise.to_dict()
        promise |= {"mechanism": repr(self.mechanism), "paid": self.private.paid, "steps": self.private.total}
        if len(self._books) > 1:
            all_runs = self._books[1].guarantee(self.recipe.delta)
            promise |= {"ledger_epsilon": all_runs.epsilon, "ledger_stamps": list(all_runs.stamps)}
        files.write(self.folder / "guarantee.json", (json.dumps(promise, indent=2) + "\n").encode())

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
        promise = self.promise
        counts = self.private.updates, self.private.paid, self.private.total
        return Point(*counts, promise.epsilon, promise.stamps, right, loss)


def _plan(folder: Path, recipe: Recipe, dim: int, examples: int) -> str:
    """The mechanism of a run as TOML, decided once: a resumed run reads it back, so that calibration cannot drift."""
    path = folder / "mechanism.toml"
    if path.exists():
        return files.text(path)
    mechanism = recipe.mechanism(dim, examples)
    files.write(path, mechanism.to_toml().encode())
    return mechanism.to_toml()


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()
    except Exception:  # noqa: BLE001 - every kind of device that is not there fails in its own way
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
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10000):
            with suppress(FileExistsError):
                (folder := root / f"{name}-{number:04d}").mkdir()
                return folder
    except OSError as error:
        raise InvalidInput(
            f"no folder can be made in {root} ({files.reason(error)}).", hint="choose another place with --runs"
        ) from None
    raise InvalidInput(f"{root} holds 9,999 runs of {name}.", hint="move some of them away")


def start(root: Path, recipe: Recipe, **options: Any) -> OpenRun:
    """A new run of `recipe` in a folder of its own below `root`.

    In processes that torchrun has started again it is the run that they had begun, gone on with from its checkpoint.
    """
    ranks = Ranks.current()
    old = begun(root, recipe) if ranks.first else None
    new = [place for place in (root, *root.parents) if not os.path.exists(place)]
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
        if ranks.first:
            _describe(opened, options)
    except BaseException:
        if ranks.first:
            for file in folder.iterdir():
                file.unlink()
            for place in (folder, *new):  # nothing was spent
                with suppress(OSError):
                    place.rmdir()
        raise
    return opened


def _describe(opened: OpenRun, options: dict[str, Any]) -> None:
    told = {key: str(options[key]) for key in ("device", "data_root", "shared") if options.get(key) is not None}
    settings = Settings(
        opened.data.shape,
        opened.data.classes,
        opened.people,
        unsafe=opened.unsafe,
        reproducible=opened.private.reproducible,
        launch=launch(),
        **told,
    )
    opened.inputs.save(opened.folder)
    files.write(opened.folder / "recipe.toml", opened.recipe.to_toml().encode())
    settings.write(opened.folder)


def reopen(folder: Path, **options: Any) -> OpenRun:
    """The run in `folder`, to be gone on with. What is missing or damaged is found before anything is written."""
    ranks, told = Ranks.current(), b""
    if ranks.first:
        told = json.dumps([files.text(folder / name) for name in ("recipe.toml", "settings.json")]).encode()
        if not (folder / "ledger.jsonl").exists():
            Ledger(folder / "ledger.jsonl", must_exist=True)  # says why it cannot go on
        files.raw(folder / "mechanism.toml")
        metrics.read(folder)
        _check_writable(folder)
    texts = json.loads(ranks.from_first(told))
    recipe, settings = Recipe.from_toml(texts[0], folder / "recipe.toml"), Settings.of(folder, texts[1])
    known: dict[str, Any] = {
        "device": settings.device,
        "people": settings.people,
        "unsafe": settings.unsafe,
        "reproducible": settings.reproducible,
        "again": True,
    }
    places = {"data_root": settings.data_root, "shared": settings.shared}
    known |= {key: Path(place) for key, place in places.items() if place is not None}
    return OpenRun(folder, recipe, **(known | options))


def _check_writable(folder: Path) -> None:
    """Raise where a result could not be written: better now than after the steps that it cost."""
    for path in (folder / name for name in _WRITTEN):
        if path.exists() and not path.is_file():
            raise InvalidInput(f"{path} is no file.", hint="move it away, or start a new run")
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"{folder} cannot be written.", hint="change its permissions, or copy it")


def load(folder: str | Path) -> nn.Module:
    """The trained module of a run, in evaluation mode: post-processing of what was released, so free to use.

    Example: ``model = noisette.load("runs/digits-0001")``.
    """
    place = Path(folder)
    recipe = Recipe.from_toml(files.text(place / "recipe.toml"), place / "recipe.toml")
    settings = Settings.read(place)
    fixed = map_of(recipe, settings.shape, place) if recipe.features else None
    shape = settings.shape if fixed is None else fixed.shape
    model = models.build(recipe.model, shape, settings.classes, seed=recipe.model_seed, **recipe.model_options)
    files.fill(model, files.load(place / "model.pt"), place / "model.pt")
    return (model if fixed is None else nn.Sequential(fixed, model)).eval()
