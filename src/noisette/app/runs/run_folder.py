"""The folder of a run: all that is needed to go on, to use the model, and to see what was promised."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

from torch import nn

from noisette import _io, _locks
from noisette.accounting import Ledger
from noisette.app import datasets
from noisette.app.features import Progress
from noisette.app.recipes.recipe import Recipe
from noisette.app.recipes.tasks import Scale
from noisette.app.runs import metrics
from noisette.app.runs.build import model_of
from noisette.app.runs.inputs import load_feature_map
from noisette.app.runs.run_settings import Settings
from noisette.app.runs.torchrun_restart import launch, run_begun_before_restart
from noisette.app.runs.training_run import OpenRun
from noisette.errors import InvalidInput
from noisette.training import Processes

__all__ = ["alone", "load", "new_folder", "reopen", "start"]

_WRITTEN = ("checkpoint.pt", "model.pt", "model.safetensors", "guarantee.json", "metrics.jsonl", "accuracy.png")
"""What a run writes again and again, beside its ledger."""


def new_folder(root: str | Path, name: str, contents: Mapping[str, str | bytes], closed: str | None = None) -> Path:
    """A new folder NAME-0001, NAME-0002, ... below `root`, which appears with `contents` in it, or not at all.

    Nobody but its owner ever has access to the folder `closed` in it.
    """
    root = Path(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        (beside := root / f".{name}.{os.urandom(8).hex()}.new").mkdir()
        try:
            if closed is not None:
                (beside / closed).mkdir(mode=0o700)  # from its first moment: a umask can only take from it
                (beside / closed).chmod(0o700)  # whole again, where a umask has taken from the owner
            for file, content in contents.items():
                (beside / file).parent.mkdir(parents=True, exist_ok=True)
                _io.write(beside / file, content.encode() if isinstance(content, str) else content)
            for number in range(1, 10000):
                folder = root / f"{name}-{number:04d}"
                if not os.path.lexists(folder) and _renamed(beside, folder):
                    return folder
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise InvalidInput(
            f"no folder can be made in {root} ({_io.reason(error)}).", hint="choose another place with --runs"
        ) from None
    raise InvalidInput(f"{root} holds 9,999 runs of {name}.", hint="move some of them away")


def _renamed(folder: Path, name: Path) -> bool:
    """Give `folder` its name, unless another process was faster."""
    try:
        folder.rename(name)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def start(
    root: str | Path,
    recipe: Recipe,
    *,
    data_root: str | Path | None = None,
    device: str = "cpu",
    shared: str | Path | None = None,
    people: str | None = None,
    unsafe: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> OpenRun:
    """A new run of `recipe` in a folder of its own below `root`.

    `shared` is a ledger that other runs pay into as well, and `population` is whom it belongs to, where that is not the
    data set by its own name. `unsafe` shows the training loss, which is private: every result is stamped with it.

    The folder has recipe and settings from the moment that it is there, so that a run that is killed while it is set up
    can be gone on with. In processes that torchrun has started again it is the run that they had begun, gone on with
    from its checkpoint.
    """
    root, processes = Path(root), Processes.current()
    recipe = replace(recipe, data=datasets.public_bounds_of(recipe.data))  # it may be resumed from another folder
    settings = Settings(
        people or datasets.population(recipe.data),
        device=device,
        data_root=None if data_root is None else str(data_root),
        shared=None if shared is None else str(shared),
        unsafe=unsafe,
        reproducible=seed is not None,
        launch=launch(),
    )
    old = run_begun_before_restart(root, recipe) if processes.is_main else None
    new = [place for place in (root, *root.parents) if not os.path.exists(place)]
    told = b""
    if processes.is_main:
        contents = {"recipe.toml": recipe.to_toml(), "settings.json": settings.to_json()}
        told = json.dumps([str(old or new_folder(root, recipe.name, contents)), old is not None]).encode()
    name, again = json.loads(processes.broadcast_bytes(told))
    folder = Path(name)
    if again:
        opened = reopen(folder, progress=progress)
        opened.resume()
        return opened
    with alone(folder, processes):
        try:
            return OpenRun(folder, recipe, settings, seed=seed, progress=progress)
        except BaseException:
            if processes.is_main:  # nothing was spent
                for file in folder.iterdir():
                    file.unlink()
                for place in (folder, *new):
                    with suppress(OSError):
                        place.rmdir()
            raise


def reopen(
    folder: str | Path,
    *,
    data_root: str | Path | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> OpenRun:
    """The run in `folder`, to be gone on with. What is missing or damaged is found before anything is written.

    A run that was killed while it was set up has spent nothing, and is set up now.
    """
    folder, processes, told = Path(folder), Processes.current(), b""
    if processes.is_main:
        told = json.dumps([_io.text(folder / name) for name in ("recipe.toml", "settings.json")]).encode()
    texts = json.loads(processes.broadcast_bytes(told))
    recipe, settings = Recipe.from_toml(texts[0], folder / "recipe.toml"), Settings.of(folder, texts[1])
    _check_people(folder, recipe, settings)
    if data_root is not None:
        settings = replace(settings, data_root=str(data_root))
    if settings.search == "winner":
        raise InvalidInput(
            f"the run in {folder} was chosen by a search, and is complete.",
            hint=f"see noisette show {quote(str(folder))}",
        )
    if processes.is_main:
        if settings.ready:
            if not (folder / "ledger.jsonl").exists():
                Ledger(folder / "ledger.jsonl", must_exist=True)  # says why it cannot go on
            _io.raw(folder / "mechanism.toml")
        metrics.read(folder)
        _check_writable(folder)
    if settings.ready:
        return OpenRun(folder, recipe, settings, seed=seed, progress=progress)
    with alone(folder, processes):
        return OpenRun(folder, recipe, settings, seed=seed, progress=progress)


def _check_people(folder: Path, recipe: Recipe, settings: Settings) -> None:
    """Raise where a path that depends on the folder we are in, as earlier versions kept it, leads to other people.

    Names of people that are not those of a file are the user's own, and say nothing about paths.
    """
    kind = recipe.data.partition(":")[0]
    if datasets.public_bounds_of(recipe.data) == recipe.data or not settings.people.startswith(f"{kind}:/"):
        return
    if datasets.population(recipe.data) != settings.people:
        raise InvalidInput(
            f"the run in {folder} was started on {settings.people}, and from here its {recipe.data} is another file.",
            hint="resume it from the folder in which it was started, or write the whole path into its recipe.toml",
        )


@contextmanager
def alone(folder: Path, processes: Processes, doing: str = "setting up the run") -> Iterator[None]:
    """Inside, no other process is `doing` that in `folder`. One that dies gives its place back by that."""
    if not processes.is_main:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _locks.hold(handle)
        except BlockingIOError:
            raise InvalidInput(
                f"another process is {doing} in {folder}.", hint="wait for it to end, then try again"
            ) from None
        yield
    finally:
        os.close(handle)


def _check_writable(folder: Path) -> None:
    """Raise where a result could not be written: better now than after the steps that it cost."""
    for path in (folder / name for name in _WRITTEN):
        if path.exists() and not path.is_file():
            raise InvalidInput(f"{path} is not a file.", hint="move it away, or start a new run")
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"{folder} cannot be written.", hint="change its permissions, or copy it")


def load(folder: str | Path) -> nn.Module:
    """The trained module of a run, in evaluation mode: post-processing of what was released, so free to use.

    It takes examples (N, ...) and gives logits (N, classes) or, where a number was learnt, that number (N,).

    Example: ``model = noisette.app.runs.load("runs/digits-0001")``.
    """
    place = Path(folder)
    recipe = Recipe.from_toml(_io.text(place / "recipe.toml"), place / "recipe.toml")
    shape, classes = Settings.read(place).example(place)
    fixed = load_feature_map(recipe, shape, place) if recipe.features else None
    model = model_of(recipe, shape if fixed is None else fixed.shape, classes)
    _io.fill(model, _io.load(place / "model.pt"), place / "model.pt")
    parts = [*([] if fixed is None else [fixed]), model]
    if recipe.target_bounds is not None:
        parts.append(Scale(*recipe.target_bounds))
    return (model if len(parts) == 1 else nn.Sequential(*parts)).eval()
