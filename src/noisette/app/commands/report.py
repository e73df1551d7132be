"""`noisette report`: what a run promises as a page for people, as an entry of a registry, as part of a model card."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from noisette.app.commands.output import JsonFlag, emit, log, refuse_search, show, tell_cut
from noisette.errors import InvalidInput

__all__ = ["report_command"]

_RUN_FILES = ("settings.json", "recipe.toml", "guarantee.json", "ledger.jsonl")


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of many for an index.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The page; page.html in the folder.")] = None,
    yaml: Annotated[Path | None, typer.Option("--yaml", help="A draft for the registry of deployments.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="A part for a model card.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """A page about a run that anybody can open, or an index of all runs in a folder."""
    if not run.is_dir():
        raise InvalidInput(f"there is no folder {run}.", hint="give the folder of a run, or runs/ for all of them")
    refuse_search(run)
    if any((run / name).exists() for name in _RUN_FILES):
        _one(run, output or run / "page.html", yaml, markdown, as_json)
        return
    if yaml is not None or markdown is not None:
        raise InvalidInput("an index has neither YAML nor Markdown.", hint="give the folder of one run")
    _all(run, output or run / "index.html", as_json)


def _one(folder: Path, page: Path, yaml: Path | None, markdown: Path | None, as_json: bool) -> None:
    from noisette.app.reports.html import MARK, card, check_place, put, run_page
    from noisette.app.reports.opendp_registry import registry
    from noisette.app.reports.run import Run
    from noisette.app.reports.statement import Statement

    wanted = {"page": page, "yaml": yaml, "markdown": markdown}
    places = [path.absolute() for path in wanted.values() if path is not None]
    if len(set(places)) != len(places):
        raise InvalidInput("two of the files have the same name.", hint="give each of them a name of its own")
    for place in places:
        check_place(place)
    with log.status("reading the run and its ledger"):
        run = Run.read(folder)
        statement = Statement(run)
        texts = {"page": run_page(statement)}
        if yaml is not None:
            texts["yaml"] = f"# {MARK}\n{registry(statement)}"
        if markdown is not None:
            texts["markdown"] = card(statement)
    tell_cut(run.book, folder / "ledger.jsonl")
    for kind, text in texts.items():
        if (path := wanted[kind]) is not None:
            put(path, text)
    value: dict[str, Any] = {
        "run": str(folder),
        **{kind: str(wanted[kind]) for kind in texts},
        "epsilon": run.promise.epsilon,
        "delta": run.promise.delta,
        "flags": list(run.promise.flags),
    }

    def human() -> None:
        for kind in texts:
            show.print(f"{kind}: {wanted[kind]}")
        show.print(f"guarantee: {run.promise}")

    emit(as_json, value, human)


def _all(root: Path, page: Path, as_json: bool) -> None:
    from noisette.app.reports.html import check_place, index_page, put
    from noisette.app.reports.index import Index

    def watched(folders: Iterable[Path]) -> Iterable[Path]:
        return track(list(folders), "reading runs", console=log, transient=True)

    check_place(page)
    index = Index.read(root, watched)
    put(page, index_page(index, page))
    for name, error in index.unreadable:
        log.print(f"{name} is left out: {error.sentence}")
    value = {
        "page": str(page),
        "runs": [
            {
                "run": str(run.folder),
                "epsilon": run.promise.epsilon,
                "delta": run.promise.delta,
                "flags": list(run.promise.flags),
                **run.points[-1].as_json,
            }
            for run in index.runs
        ],
        "unfinished": [name for name, _ in index.unfinished],
        "unreadable": [name for name, _ in index.unreadable],
    }
    emit(as_json, value, lambda: show.print(f"page: {page}"))
