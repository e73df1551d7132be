"""Finished runs of milliseconds, for statements and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisette.app.runs import start
from tests.support.tiny_run import recipe

WORDS = {
    "name": "A reader of <b>forms</b> & more",
    "curator": "The Institute | of *Forms*",
    "use": "Reading numbers: nothing else.",
    "domain": "One row for every person.",
}


def finished(root: Path, *, shared: Path | None = None, **options: Any) -> Path:
    """The folder of a run with all of its steps taken, below `root`; `options` go to `start` or change the recipe."""
    kept = {name: options.pop(name) for name in ("unsafe", "seed", "people") if name in options}
    plan = recipe(root, **({"steps": 4, "evaluations": 2, "statement": WORDS} | options))
    opened = start(root / "runs", plan, data_root=root, shared=shared, **kept)
    try:
        for _ in opened.points():
            pass
    finally:
        opened.close()
    return opened.folder
