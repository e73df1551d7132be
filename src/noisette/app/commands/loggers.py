"""Where the points of a run are written beside its own metrics: TensorBoard, Weights & Biases, trackio; all offline.

A logger gets epsilon and how good the model is on public data, and nothing else. Of the machine, its load and its clock
it writes as little as it can: how long a step takes may tell of the data.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisette.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from noisette.app.runs.metrics import Point

__all__ = ["Logger", "LoggerOption", "loggers_of"]

LoggerOption = Annotated[
    list[str] | None,
    typer.Option("--logger", help="tensorboard, wandb or trackio, all offline; may be repeated."),
]


class Logger:
    """Takes points of a run until it is closed."""

    def __init__(self, write: Callable[[dict[str, float], int], Any], close: Callable[[], Any]) -> None:
        self._write, self.close = write, close

    def log(self, point: Point) -> None:
        """What `point` tells, by the names that people are shown."""
        measured = {} if point.measured is None else {f"test {point.measured.name}": point.measured.value}
        self._write({point.label: point.epsilon, **measured}, point.updates)


def _tensorboard(module: ModuleType, folder: Path) -> Logger:
    board = module.SummaryWriter(str(folder / "tensorboard"))

    def write(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            board.add_scalar(name, value, step)

    return Logger(write, board.close)


def _wandb(module: ModuleType, folder: Path) -> Logger:
    quiet = module.Settings(
        console="off", disable_code=True, disable_git=True, silent=True, x_disable_meta=True, x_disable_stats=True
    )
    run = module.init(
        project="noisette", name=folder.name, dir=str(folder), mode="offline", reinit="create_new", settings=quiet
    )
    return Logger(lambda values, step: run.log(values, step=step), run.finish)


def _trackio(module: ModuleType, folder: Path) -> Logger:
    """All runs are in trackio's own place on this machine, where ``trackio show`` looks for them."""
    with redirect_stdout(sys.stderr):  # it talks
        run = module.init("noisette", name=folder.name, embed=False, auto_log_cpu=False, auto_log_gpu=False)

    def close() -> None:
        with redirect_stdout(sys.stderr):
            module.finish()  # and not the run's: that is finished again, aloud, when the program ends

    return Logger(lambda values, step: run.log(values, step=step), close)


_LOGGERS: dict[str, tuple[str, str, Callable[[ModuleType, Path], Logger]]] = {
    "tensorboard": ("torch.utils.tensorboard", "TensorBoard", _tensorboard),
    "trackio": ("trackio", "trackio", _trackio),
    "wandb": ("wandb", "Weights & Biases", _wandb),
}
"""By name: the module, what people call it, and how it is opened."""

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


def loggers_of(names: list[str] | None) -> list[Callable[[Path], Logger]]:
    """What opens each of the loggers called `names` in a run's folder; asked for before a run has one."""
    return [_opener(name) for name in dict.fromkeys(names or [])]


def _opener(name: str) -> Callable[[Path], Logger]:
    if name not in _LOGGERS:
        raise InvalidInput(f"there is no logger {name!r}.", hint=f"choose some of {', '.join(_LOGGERS)}")
    if name == "trackio" and (elsewhere := [key for key in _ELSEWHERE if os.environ.get(key)]):
        raise InvalidInput(
            f"{elsewhere[0]} would send trackio's log elsewhere during the run.",
            hint=f"unset {elsewhere[0]}; `trackio sync` uploads it when you have seen it",
        )
    path, called, opened = _LOGGERS[name]
    try:
        module = importlib.import_module(path)
    except ImportError:
        raise MissingExtra.of(called, extra=name) from None
    return lambda folder: opened(module, folder)
