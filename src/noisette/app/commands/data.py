"""`noisette data fetch`: bring a public data set to where training looks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from noisette.app.commands.output import JsonFlag, emit, log, show

__all__ = ["data_app"]

data_app = typer.Typer(no_args_is_help=True, help="Data sets.")


@data_app.callback()
def _root() -> None:
    """Data sets."""


@data_app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist or cifar10.")],
    data_root: Annotated[Path | None, typer.Option("--data-root", help="Folder to put it in.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Download a data set from where its authors publish it, and check its SHA-256."""
    from noisette.app.datasets import fetch

    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), console=log, transient=True
    ) as bar:
        task = bar.add_task(name, total=None)

        def report(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total or None)

        folder = fetch(name, data_root, report)
    emit(as_json, {"name": name, "folder": str(folder)}, lambda: show.print(str(folder)))
