"""`noisette check`: what would be refused or slow about a model, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisette.app.commands.output import JsonFlag, emit, log, show, table
from noisette.errors import InvalidInput, NoisetteError

if TYPE_CHECKING:
    from noisette.training import Report

__all__ = ["check_command"]

_MODEL = "Import path of a model, or of what makes one: my_package.nets:Net."
_DATA = "Import path of data, or of what makes it: its shapes decide what the model is tried on."
_GOAL = "Import path of a loss or objective; without it, the outputs of the model are tried."


def check_command(
    model: Annotated[str, typer.Argument(help=_MODEL)],
    data: Annotated[str, typer.Option("--data", help=_DATA)] = "",
    goal: Annotated[str, typer.Option("--loss", help=_GOAL)] = "",
    as_json: JsonFlag = False,
) -> None:
    """What would be refused or slow about a model, layer by layer, with the fix; status 1 if anything is refused."""
    from torch import nn

    from noisette.app.models._import_path import imported
    from noisette.training import check

    with log.status("trying the model"):
        found = _made(model)
        if not isinstance(found, nn.Module):
            raise InvalidInput(
                f"{model} is of type {type(found).__name__}, and no model.",
                hint="name a module of torch, or a function without arguments that makes one",
            )
        aim: Any = imported(goal) if goal else None
        examples = _made(data) if data else None
        report = check(found, examples, goal=aim() if isinstance(aim, type) else aim)
    rows = [asdict(finding) for finding in report.findings]
    told = {"model": model, "passed": report.passed, "parameters": report.parameters, "path": report.path}
    emit(as_json, {**told, "findings": rows}, lambda: _show(report))
    if not report.passed:
        raise typer.Exit(1)


def _show(report: Report) -> None:
    if not report.findings:
        show.print(str(report))
        return
    rows = [[one.layer, one.verdict, one.reason, one.fix] for one in report.findings]
    shown = table(["layer", "verdict", "why", "fix"], rows)
    for column in shown.columns:
        column.justify, column.overflow = "left", "fold"
    show.print(shown)


def _made(path: str) -> Any:
    """What an import path leads to, or, where that is a class or a function, what it makes."""
    from torch import nn

    from noisette.app.models._import_path import imported

    found = imported(path)
    if isinstance(found, nn.Module) or not callable(found):
        return found
    try:
        return found()
    except NoisetteError:
        raise
    except Exception as error:  # noqa: BLE001 - code of others fails in ways of its own, and may tell of private data
        raise InvalidInput(
            f"{path}() fails ({type(error).__name__}).", hint="name something that needs no arguments; try it in Python"
        ) from None
