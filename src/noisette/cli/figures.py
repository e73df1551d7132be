"""`noisette figures`: the figures of the paper and the page about them, computed where points are missing."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from noisette.cli.output import JsonFlag, emit, log, show
from noisette.errors import InvalidInput

__all__ = ["figures_command", "importable"]


def figures_command(
    names: Annotated[list[str] | None, typer.Argument(help="Figures; all of them if none is named.")] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Where the experiments are.")] = Path("experiments"),
    draw: Annotated[bool, typer.Option("--draw", help="Only redraw, from the points that are kept.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute the missing points of the paper's figures, draw them, and write docs/results.md."""
    if not (folder / "page.py").is_file():
        raise InvalidInput(
            f"there are no experiments in {folder}.",
            hint="run it in a clone of the repository, or say with --folder where experiments/ is",
        )
    began = time.monotonic()
    with importable(folder.resolve()):
        page = importlib.import_module("page")
        chosen = list(dict.fromkeys(names or (page.drawn() if draw else page.here())))
        for name in chosen:
            if name not in page.here():
                raise InvalidInput(f"there is no figure {name!r}.", hint=f"choose one of {', '.join(page.here())}")
        rows = _make(chosen, folder / "results", draw, as_json)
        written = Path(os.path.relpath(page.write()))
    value = {"figures": rows, "page": str(written), "seconds": round(time.monotonic() - began, 2)}
    emit(as_json, value, lambda: _tell(rows, written))


def _make(names: list[str], results: Path, draw: bool, as_json: bool) -> list[dict[str, Any]]:
    """Fill and draw each figure, with a bar for each; Ctrl-C keeps the points that are done."""
    rows = []
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, console=log, transient=as_json) as bar:
            for name in names:
                task = bar.add_task(name, total=None)
                figure = importlib.import_module(name)
                if not draw:
                    figure.fill(_teller(bar, task, name))
                bar.update(task, description=f"{name}: drawing")
                figure.draw()
                bar.update(task, description=name, total=1, completed=1)
                rows.append(
                    {
                        "name": name,
                        "picture": str(results / f"{name}.png"),
                        "claims": [asdict(claim) for claim in figure.claims()],
                    }
                )
    except KeyboardInterrupt:
        log.print("stopped; finished points are kept: the same command goes on from there")
        raise typer.Exit(1) from None
    return rows


def _teller(bar: Progress, task: TaskID, name: str) -> Callable[[str, int, int], None]:
    return lambda what, done, total: bar.update(task, description=f"{name}: {what}", completed=done, total=total)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Inside, the modules of `folder` are imported by their plain names, and no others of these names are."""
    names = [path.stem for path in folder.glob("*.py")]
    aside = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(aside)


def _tell(rows: list[dict[str, Any]], page: Path) -> None:
    for claim in [claim for row in rows for claim in row["claims"]]:
        show.print(f"{claim['claim']}\n  {claim['verdict']}")
    for row in rows:
        show.print(f"plot: {row['picture']}")
    show.print(f"page: {page}")
