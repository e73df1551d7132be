"""CIFAR-10 at the paper's full length, 19,531 steps: goes on wherever it was left, for hours.

python experiments/long.py        # stop it at any time; the same command goes on, from at most 128 steps before

The order: learning rates, one more of each series in turn (`rates`), then the runs of PLAN in `series`: the headline of
every series, the other noise levels, other seeds. `python experiments/figures.py --draw` shows what there is.
"""

from __future__ import annotations

import sys

import rates
import series
from figures import LOG, teller
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from series import FULL, SERIES
from training import Tell, ensure

from noisette.errors import NoisetteError

NAMES = ("encoded_student_t", "encoded_gaussian", "dpsgd")


def fill(tell: Tell) -> None:
    """Train what is missing, the most telling first."""
    while wanted := [(name, rate) for name in NAMES if (rate := next_rate(name)) is not None]:
        for name, rate in wanted:
            ensure(SERIES[name].trial().changed(lr=rate), 0, tell, kept=rates.KEPT, held_out=True)
    series.fill(NAMES, tell, FULL)


def next_rate(name: str) -> float | None:
    """The learning rate that a series tries next, None when its rate is chosen."""
    trial = SERIES[name].trial()
    return rates.following(rates.tried(trial), trial.lr)


def main() -> int:
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, console=LOG) as bar:
            fill(teller(bar, bar.add_task("long", total=None), "long"))
    except KeyboardInterrupt:
        LOG.print("stopped; the same command goes on from the last checkpoint")
        return 1
    except NoisetteError as error:
        LOG.print(f"error: {error}", markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
