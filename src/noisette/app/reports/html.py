"""Pages about runs: one HTML file each, with everything in it, and a Markdown part for a model card.

They need no network and no JavaScript. Everything on them comes through `Run` and `Statement`, and is escaped.
"""

from __future__ import annotations

import math
import os
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from noisette import _io
from noisette._guarantee import ALARMS, CAUTIONS, probability_in_words, rounded_up
from noisette.app.reports import _page_plots
from noisette.app.reports.index import Index
from noisette.app.reports.statement import Statement
from noisette.errors import InvalidInput

__all__ = ["MARK", "card", "check_place", "index_page", "put", "run_page"]

MARK = "Written by noisette report"
"""What every file that is written here says of itself, so that it may be written over and nothing else is."""

_MARKDOWN = "\\`*_{}[]<>#|~$"


def run_page(statement: Statement) -> str:
    """The page of one run."""
    run = statement.run
    return _render(
        "run.html",
        statement=statement,
        run=run,
        chance=probability_in_words(run.promise.delta),
        most=math.ceil(100 * run.found(ALARMS[0]) - 1e-9),
        found=_page_plots.draw_found(run),
        test=_page_plots.draw_test(run),
        progress=_page_plots.draw_progress(run),
    )


def index_page(index: Index, page: Path) -> str:
    """The page of all runs in a folder, with links from `page` to the pages of runs that have one."""
    rows = [
        {
            "number": number,
            "run": run,
            "epsilon": rounded_up(run.promise.epsilon),
            "link": os.path.relpath(run.folder / "page.html", page.parent)
            if (run.folder / "page.html").is_file()
            else None,
        }
        for number, run in enumerate(index.runs, start=1)
    ]
    measured = [
        (number, run.promise.epsilon, run.measured.value)
        for number, run in enumerate(index.runs, start=1)
        if run.measured is not None
        and run.measured.key == "accuracy"  # errors of different numbers have no common axis
    ]
    purses = [
        {
            "purse": purse,
            "total": rounded_up(purse.totals[-1]) if purse.totals else None,
            "picture": _page_plots.draw_spending(f"spending{number}", purse.people, purse.totals)
            if purse.totals
            else None,
        }
        for number, purse in enumerate(index.purses)
    ]
    return _render(
        "index.html",
        name=index.root.resolve().name,
        rows=rows,
        picture=_page_plots.draw_runs(measured),
        purses=purses,
        unfinished=index.unfinished,
        unreadable=[name for name, _ in index.unreadable],
        cautions=CAUTIONS,
    )


def card(statement: Statement) -> str:
    """The statement in Markdown, for a model card."""
    return _render("card.md", statement=statement, run=statement.run)


def check_place(path: Path) -> None:
    """Raise where a file at `path` is none of ours: it must not be lost."""
    if os.path.lexists(path) and not (path.is_file() and MARK.encode() in _io.raw(path)):
        raise InvalidInput(
            f"{path} is there already, and noisette report has not written it.",
            hint="choose another name, or move it away",
        )


def put(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    _io.write(path, text.encode(), hint="choose another place that is there and can be written")


def _render(template: str, **values: object) -> str:
    html = template.endswith(".html")
    environment = Environment(
        loader=FunctionLoader(_template), autoescape=html, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["md"] = _escaped
    return environment.get_template(template).render(mark=MARK, style=Markup(_template("style.css")), **values)


def _template(name: str) -> str:
    return (resources.files("noisette.app.reports") / "templates" / name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    r"""`text` as Markdown shows it, whatever characters it has.

    >>> print(_escaped("a_b | <i>"))
    a\_b \| \<i\>
    """
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in text)
