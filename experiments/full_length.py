"""CIFAR-10 at the paper's full length of 100 epochs (T = 19,531), beside its curves, as far as the runs are there.

`long.py` makes them, in the order that it tells, and nothing here does.
"""

from __future__ import annotations

import full_tables as tables
import numpy as np
import paper
import series
from beside import show
from convergence import reached
from full_claims import KEPT, claims
from full_tables import SHOWN
from kept import RESULTS, Point
from long import NAMES
from markdown import picture
from search import best, candidates
from series import FULL, PLAN, SERIES
from training import Tell

from noisette.app.reports._mpl_style import GREY, panels, save

__all__ = ["claims", "draw", "fill", "section"]


def fill(tell: Tell) -> None:
    """Search the runs that are there at every budget of the paper; none is trained."""
    points = []
    for done, name in enumerate(series.present(NAMES, FULL)):
        tell("full_length: searching", done, len(NAMES))
        runs = candidates(name, FULL)
        budgets = map(float, paper.curve("best_cifar10", name)[1])
        points += [best(name, budget, runs) for budget in budgets if any(one.within(budget) for one in runs)]
    if points:
        KEPT.rewrite(points)


def draw() -> None:
    """What `fixed_epochs`, `trajectory`, `best` and `convergence` draw, of CIFAR-10 at full length."""
    figure, (fixed, over, budgets, speed) = panels(4, width=5.0, height=3.9, rows=2)
    for name in NAMES:
        one, colour = SERIES[name], SERIES[name].colour
        for axis, file, turned in (
            (fixed, "fixed_epochs", True), (over, "trajectory", False),
            (budgets, "best", True), (speed, "convergence", False),
        ):  # fmt: skip
            x, y = paper.curve(f"{file}_cifar10", name)
            axis.plot(*((y, x) if turned else (x, y)), color=colour, linestyle=":")
        show(fixed, one, FULL, one.label)
        if one.known(FULL):
            steps, found = one.curve(FULL)
            over.plot(steps, found, color=colour)
            levels = np.arange(48.0, 60.0, 0.25)
            speed.plot(levels, [reached(steps, found, level) for level in levels], color=colour)
        points = KEPT.all(series=name)
        budgets.plot([p["budget"] for p in points], [p["accuracy"] for p in points], color=colour, marker="o", ms=4)
    fixed.plot([], [], color=GREY, linestyle=":", label="dotted: the paper's curve")
    fixed.set(xlabel="epsilon by the paper's accountant", ylabel="test accuracy at the last step (%)")
    over.set(xlabel="iterations", ylabel="test accuracy (%)", xlim=(0, SHOWN[-1]), ylim=(20, 65))
    budgets.set(xlabel="epsilon at delta = 1e-5", ylabel="best test accuracy (%)")
    speed.set(xlabel="test accuracy to reach (%)", ylabel="iterations", yscale="log")
    figure.suptitle(f"CIFAR-10, 100 epochs: {_there()}; bars span the seeds", fontsize=11)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, RESULTS / "full_length.png")


def section() -> str:
    """What is there, what is to come, the rates, and every number beside the paper's."""
    return f"""
## CIFAR-10 at the paper's full length

All 100 epochs (T = 19,531) in batches of 256, delta 1e-5, with the network of 34,930 parameters, whose activations are
tanh. **{_there().capitalize()}.** All other figures of CIFAR-10 on this page are of 10 epochs or fewer.
{tables.compared()}
The paper does not tell its network. It calls its set-up comparable to that of Abadi et al. (2016), who trained only the
last layers on CIFAR-10 and took the convolutional ones from CIFAR-100. Its curves lie 6 to 10 points above ours after
the first epoch and flatten early, as layers that were trained before, or a larger learning rate, would make them; so a
difference of a few points between its curves and ours can be that of the networks. What can be compared is the order of
the three series on one network. There the paper took the same learning rate for all of them, and here each has its own.

Its numbers come from four of its figures, which agree with each other to a point or so: accuracy by epsilon after 100
epochs (*paper's curve*; where our epsilon is beyond an end of it, the cell names the epsilon of that end), the best so
far after so many iterations (on to 39,000, where ours end at 19,531), iterations to an accuracy, and the best within a
budget. *Accuracy after* and *iterations to* are of the mean of our seeds; *best within epsilon* is by the paper's
accountant. From 4.5 to 9 the best of Gaussian noise stands still there, since no sigma between 0.7 and 1.1 was run, and
from 7.5 to 9 Student-t noise at 0.741 is level with DPSGD or ahead of it: that is the grid of noise levels, no more.

`python experiments/long.py` goes on with the runs and can be stopped at any time; with the name of a series it trains
that one, so that every core can have its own. `make figures` shows what is there and trains none of them.
{_cost()}A run is made in parts of 128 steps with a checkpoint after each.
Every part draws from a seed of its own, so that a run that was stopped comes to the same point, as long as code and
processor are the same: a point lists its commits. The points in `runs.json` and `long_rates.json` have seed, command,
commit and CPU seconds. The best accuracy for a budget, in the third plot and the last table, is chosen on the test set
as in the paper, among the runs of seed 0, that at rate 80 with them, and their lengths; the choice is not paid for.

Learning rates come first: for every series a first rate ({_firsts()}: half of what is best at a tenth of the
length, for encoded Gaussian noise that of Student-t noise), twice and half of it, and further until the best has both
neighbours. They are tried at the headline scale for a quarter of the length (4,883 steps), trained on five sixths of
the training examples and judged on the others at the last step, one run each. At full length every series takes half of
its best: the best constant rate falls as one over the root of the number of steps, and there are four times as many.
One run was made before with the best for a quarter itself, 80 for Student-t noise: it stood at 50.4% after 4,680 steps,
rose to 51.1%, and fell to 47.7% at the end. That was seen on test pictures; the rule is the textbook's, and nothing of
it was fitted to them. Then come the headline runs of the three series, other noise levels and two more seeds of the
headline.

{tables.tried()}{tables.found()}{tables.bought()}
{picture("full_length", "CIFAR-10 at full length: ours beside the paper's curves, in four plots")}

Again: `python experiments/figures.py full_length`.
"""


def _firsts() -> str:
    return ", ".join(f"{SERIES[name].trial().lr:g}" for name in NAMES)


def _runs() -> list[Point]:
    return [
        run for one in map(SERIES.__getitem__, NAMES) for scale in one.levels(FULL) for run in one.kept(scale, FULL)
    ]


def _there() -> str:
    done, planned = len(_runs()), len(PLAN[FULL])
    if done == planned:
        levels = [(SERIES[name], scale) for name in NAMES for scale in SERIES[name].levels(FULL)]
        others = sum(len(one.at_any_rate(scale, FULL)) for one, scale in levels) - done
        return f"all {done} runs" + f", and {others} at another rate" * (others > 0)
    chosen = sum(SERIES[name].rate(FULL) is not None for name in NAMES)
    return f"{done} of {planned} runs are there, {chosen} of {len(NAMES)} learning rates are chosen"


def _cost() -> str:
    minutes = sorted(round(run["cpu_seconds"] / 60) for run in _runs())
    if not minutes:
        return ""
    return f"A run took {minutes[0]} to {minutes[-1]} minutes of one core, by the machine and the commit. "
