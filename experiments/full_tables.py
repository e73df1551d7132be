"""The tables of `full_length`: learning rates that were tried, and runs at full length beside the paper's numbers."""

from __future__ import annotations

import paper
import rates
import series
from beside import told
from convergence import iterations, reached
from full_claims import KEPT
from long import NAMES
from markdown import table
from series import FULL, SERIES
from trajectory import at as after

SHOWN = (195, 975, 1950, 4680, 9360, 19531)
LEVELS = (50.0, 52.0, 54.0, 56.0)
BUDGETS = (1.5, 2.5, 3.5, 4.5, 5.5, 7.5, 9.5)


def tried() -> str:
    """Every held-out run that chooses a learning rate."""
    rows = []
    for one in map(SERIES.__getitem__, NAMES):
        for run in rates.runs(one.trial()):
            rate = f"{run['lr']:g}" + ", best" * (run["lr"] == rates.chosen(one.trial()))
            rows.append([one.label, rate, f"{run['accuracy']:.2f}", f"{run['cpu_seconds'] / 60:.1f}", run["commit"]])
    return table(["series", "learning rate", "held-out accuracy", "CPU minutes", "commit"], rows)


def bought() -> str:
    """The best accuracy for some budgets, beside the paper's; nothing before runs were searched."""
    rows = list[list[str]]()
    for name in NAMES:
        ours = {point["budget"]: point["accuracy"] for point in KEPT.all(series=name)}
        right, budget = paper.curve("best_cifar10", name)
        theirs = dict(zip(budget.tolist(), right.tolist(), strict=True))
        for label, found in ((SERIES[name].label, ours), (f"the paper's `{name}`", theirs)) if ours else ():
            rows.append([label, *(f"{found[one]:.2f}" if one in found else "" for one in BUDGETS)])
    return "\n" + table(["best within epsilon", *map("{:g}".format, BUDGETS)], rows) if rows else ""


def compared() -> str:
    """How far DPSGD is ahead of encoded Gaussian noise, which costs as much at the same scale; nothing without runs."""
    one, other = SERIES["dpsgd"], SERIES["encoded_gaussian"]
    both = sorted({*one.levels(FULL)} & {*other.levels(FULL)})
    gaps = [series.last(one.kept(scale, FULL)) - series.last(other.kept(scale, FULL)) for scale in both]
    ahead = ", ".join(f"{gap:+.2f} points at {scale:g}" for gap, scale in zip(gaps, both, strict=True))
    words = "At equal sigma, so at equal epsilon, DPSGD against encoded Gaussian noise with KS"
    return f"\n{words}: {ahead}.\n" if ahead else ""


def found() -> str:
    """Every full-length run, then accuracies and iterations of the headline beside the paper's, once there are any."""
    rows, over, speed = list[list[str]](), list[list[str]](), list[list[str]]()
    for name in NAMES:
        one = SERIES[name]
        for scale in one.levels(FULL):
            own = one.kept(scale, FULL)
            for runs in (own, *([run] for run in one.at_any_rate(scale, FULL) if run not in own)):
                epsilon, rate = runs[0]["epsilon_rdp"], f"{runs[0]['lr']:g}"
                found = [f"{epsilon:.3f}", f"{runs[0]['epsilon_pld']:.3f}", series.spread(runs)]
                rows.append([one.label, f"{scale:g}", rate, *found, told(name, epsilon, FULL)])
        if one.known(FULL):
            ours, theirs = one.curve(FULL), paper.curve("trajectory_cifar10", name)
            fast, slow = ours, paper.curve("convergence_cifar10", name)[::-1]
            for label, curve, reach in ((one.label, ours, fast), (f"the paper's `{name}`, best so far", theirs, slow)):
                over.append([label, *(f"{after(*curve, step):.2f}" for step in SHOWN)])
                speed.append([label, *(iterations(reached(*reach, level)) for level in LEVELS)])
    if not rows:
        return ""
    columns = ["series", "scale", "learning rate", "epsilon, classic", "epsilon, tight", "accuracy", "paper's curve"]
    shown = table(["accuracy after", *(f"{step:,}" for step in SHOWN)], over)
    return f"\n{table(columns, rows)}\n{shown}\n{table(['iterations to', *(f'{x:g}%' for x in LEVELS)], speed)}"
