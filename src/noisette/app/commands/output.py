"""How commands speak: data on stdout, everything else on stderr, errors with a hint, one JSON object on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from noisette.errors import InvalidInput, MissingExtra, NoisetteError

if TYPE_CHECKING:
    from noisette.accounting._ledger_format import Record
    from noisette.app.features import Progress

__all__ = [
    "JsonFlag",
    "emit",
    "fail",
    "features_on",
    "log",
    "plotted",
    "refuse_search",
    "show",
    "table",
    "tell_all_taken",
    "tell_cut",
    "tell_unbounded",
]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]

# no markup: what is said quotes names and files of others, where brackets may stand for nothing
show = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
log = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def emit(as_json: bool, value: dict[str, Any], human: Callable[[], None]) -> None:
    """Print `value` as JSON, or call `human` to show it to a person."""
    if as_json:
        sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    else:
        human()


def refuse_search(folder: Path) -> None:
    """Raise where `folder` is that of a search, which has no model of its own, or its private part."""
    if (folder / "search.json").exists():
        raise InvalidInput(
            f"{folder} is the folder of a search, and not of a run.",
            hint=f"give that of the run that it has chosen: noisette resume {quote(str(folder))} tells its name",
        )
    if (folder / "PRIVATE.txt").exists():
        raise InvalidInput(
            f"{folder} is the private part of a search.", hint="use the run that the search has chosen, and delete this"
        )


def fail(error: NoisetteError) -> int:
    """Tell an error and its fix on stderr; the exit status is 1."""
    sentence, hint = _line(error.sentence), _line(error.hint)
    log.print(Text.assemble(("error:", "bold red"), f" {sentence}\n\n", ("hint:", "bold cyan"), f" {hint}"))
    return 1


def tell_cut(record: Record, path: Path) -> None:
    """Say on stderr that lines of the ledger at `path` were cut short, and what they were counted as."""
    if record.torn_steps is not None:
        counted = f"it counts as {record.torn_steps} steps, the most it can have paid"
        log.print(f"a line of the ledger {path} was cut short: {counted}")


def tell_all_taken(batch: int, examples: int, of: str = "example") -> None:
    """Say on stderr that a batch cannot be as large as was asked for."""
    if batch > examples:
        told = f"a batch of {batch} is more than the {examples} training {of}s"
        log.print(f"{told}: every step takes all of them, which is a rate of 1")


def tell_unbounded(data: str) -> None:
    """Say on stderr that a table has no bounds, whatever its numbers are: these are private, and have no say in it."""
    from noisette.app.datasets import file_without_bounds

    if (file := file_without_bounds(data)) is not None:
        told = f"the table has no bounds, as there is no {file}"
        log.print(f"{told}: its numbers are taken as they are, so columns should be of similar size")


def features_on(status: Status) -> Progress:
    """Progress of the features, which take minutes the first time, on a status line that goes away."""
    return lambda done, total: status.update(f"computing features: {done:,} of {total:,} pictures, once for all runs")


def _line(text: str) -> str:
    """On one line: a name that is quoted may hold line ends, bells, or bytes that are no text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(columns: list[str], rows: list[list[str]]) -> Table:
    """A plain table, first column to the left and numbers to the right."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        out.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        out.add_row(*row)
    return out


def plotted(folder: Path) -> Path | None:
    """The plot of a run that is done, None where nothing can draw: what was paid for is kept all the same."""
    try:
        from noisette.app.reports.accuracy import draw_accuracy
    except MissingExtra as missing:
        log.print(f"there is no plot: {missing.sentence} {missing.hint}", markup=False)
        return None
    return draw_accuracy(folder)
