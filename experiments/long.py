"""CIFAR-10 at the paper's full length, 19,531 steps: goes on wherever it was left, for hours.

python experiments/long.py            # stop it at any time; the same command goes on, from at most 128 steps before
python experiments/long.py dpsgd      # one series: another core can have another one at the same time

The order: learning rates, one more of each series in turn (`rates`), then the runs of PLAN in `series`: the headline of
every series, the other noise levels, other seeds. `python experiments/figures.py --draw` shows what there is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import rates
import series
from figures import LOG, teller
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from series import FULL, SERIES
from training import Tell, ensure

from noisette.errors import NoisetteError

NAMES = ("encoded_student_t", "encoded_gaussian", "dpsgd")


def fill(tell: Tell, names: tuple[str, ...] = NAMES) -> None:
    """Train what is missing of some series, the most telling first."""
    while wanted := [(name, rate) for name in names if (rate := next_rate(name)) is not None]:
        for name, rate in wanted:
            ensure(SERIES[name].trial().changed(lr=rate), 0, tell, kept=rates.KEPT, held_out=True)
    series.fill(names, tell, FULL)


def next_rate(name: str) -> float | None:
    """The learning rate that a series tries next, None when its rate is chosen."""
    trial = SERIES[name].trial()
    return rates.following(rates.tried(trial), trial.lr)


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"series, of {', '.join(NAMES)}")
    names = options.parse_args(arguments).names
    for name in names:
        if name not in NAMES:
            options.error(f"there is no series {name!r}: choose from {', '.join(NAMES)}")
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, console=LOG) as bar:
            fill(teller(bar, bar.add_task("long", total=None), "long"), tuple(names) or NAMES)
    except KeyboardInterrupt:
        LOG.print("stopped; the same command goes on from the last checkpoint")
        return 1
    except NoisetteError as error:
        LOG.print(f"error: {error}", markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
