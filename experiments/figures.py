"""The figures of the paper and the page about them, computed where points are missing: `make figures`.

python experiments/figures.py                     # all figures, then docs/results.md
python experiments/figures.py l1_distance         # one of them
python experiments/figures.py --draw              # only drawn anew, from the points that are kept
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import page
from kept import RESULTS
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from noisette.errors import NoisetteError

LOG = Console(stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="figures; all of them if none is named")
    options.add_argument("--draw", action="store_true", help="only redraw, from the points that are kept")
    given = options.parse_args(arguments)
    for name in given.names:
        if name not in page.here():
            options.error(f"there is no figure {name!r}: choose from {', '.join(page.here())}")
    names = list(dict.fromkeys(given.names or (page.drawn() if given.draw else page.here())))
    try:
        make(names, given.draw)
    except KeyboardInterrupt:
        LOG.print("stopped; finished points are kept: the same command goes on from there")
        return 1
    except NoisetteError as error:
        LOG.print(f"error: {error}", markup=False)
        return 1
    print(f"page: {page.write()}")
    return 0


def make(names: Sequence[str], draw: bool) -> None:
    """Fill and draw each figure, with a bar for each, then tell its claims."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    figures = {}
    with Progress(*columns, console=LOG) as bar:
        for name in names:
            task = bar.add_task(name, total=None)
            figures[name] = figure = importlib.import_module(name)
            if not draw:
                figure.fill(teller(bar, task, name))
            bar.update(task, description=f"{name}: drawing")
            figure.draw()
            bar.update(task, description=name, total=1, completed=1)
    for name, figure in figures.items():
        for claim in figure.claims():
            print(f"{claim.claim}\n  {claim.verdict}")
        print(f"plot: {Path(RESULTS) / f'{name}.png'}")


def teller(bar: Progress, task: TaskID, name: str) -> Callable[[str, int, int], None]:
    return lambda what, done, total: bar.update(task, description=f"{name}: {what}", completed=done, total=total)


if __name__ == "__main__":
    sys.exit(main())
