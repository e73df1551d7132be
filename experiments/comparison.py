"""Does any encoder, noise or denoiser beat L2 clipping with Gaussian noise? Epsilon 1, one thing changed at a time.

Result: L2 clipping with Gaussian noise has 97.93% on MNIST, 86.96% on Fashion-MNIST and 66.09% on CIFAR-10, in softmax
regression on few features (three seeds), and 93.22% in a short run of a CNN (two). Several tail weights with Student-t
noise and the score denoiser have 98.26%, 87.51%, 66.16% and 93.55%: beyond the spread of seeds on the first two, ties
on the others and at the size of a recipe (98.52% against 98.38% on MNIST, 88.49% against 88.36% on Fashion-MNIST, three
seeds). Encoders and noises alone tie or nearly so; KS and LowPass lose everywhere, and so does the paper's combination
(96.94%, 84.38%, 64.42%, 90.47%).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from beyond.trials import keep, tried_rates, tuned
from beyond.variants import EPSILON, TASKS, WAYS, Task, examples, mechanism, ways
from kept import RESULTS, Claim, Kept
from markdown import picture, table

from noisette.accounting import compare
from noisette.app.reports._mpl_style import GREY, PALETTE, panels, save

KEPT = Kept("comparison")
DEFAULT, PAPER = next(iter(WAYS)), list(WAYS)[-1]


def fill(tell: Callable[[str, int, int], None]) -> None:
    """Tune every way on every task, then run it with its best rate: an hour and a half on one core."""
    pairs = [(task, way) for task in TASKS for way in ways(TASKS[task])]
    for name in (name for name, task in TASKS.items() if not task.large and not KEPT.has(kind="noises", task=name)):
        tell(f"{name}: noises at equal epsilon", 0, len(pairs))
        law = mechanism(TASKS[name], "half-normal", len(examples(TASKS[name])[0][0]))
        rows = {row.law: [row.l2, row.effective_sigma] for row in compare(law, EPSILON, 1e-5)}
        KEPT.add({"kind": "noises", "task": name, "rows": rows})
    for number, (name, way) in enumerate(pairs):
        task = TASKS[name]

        def stepped(step: int, label: str = f"{name}: {way}", number: int = number, task: Task = task) -> None:
            tell(f"{label}, step {step} of {task.steps}", number, len(pairs))

        lr = task.lr if task.large else tuned(KEPT, name, way, stepped)
        for seed in range(task.seeds):
            keep(KEPT, "run", name, way, lr, seed, stepped)
    tell("comparison", len(pairs), len(pairs))


def _found(task: str, way: str) -> list[float]:
    """Test accuracies in percent at the best rate, one for each seed."""
    tried = tried_rates(KEPT, task, way)
    lr = max(tried, key=lambda rate: tried[rate]) if tried else TASKS[task].lr
    return [100 * run["accuracy"] for run in KEPT.all(kind="run", task=task, way=way, lr=lr)]


def against(task: str, way: str) -> str:
    """Whether every seed of a way is better than every seed of the default ("wins"), worse ("loses"), or neither."""
    theirs, ours = _found(task, way), _found(task, DEFAULT)
    return "wins" if min(theirs) > max(ours) else "loses" if max(theirs) < min(ours) else "ties"


def done() -> list[str]:
    """Tasks whose runs are all there."""
    return [name for name, task in TASKS.items() if all(len(_found(name, way)) == task.seeds for way in ways(task))]


def draw() -> None:
    """For every task, how far each way is from the default: mean and range of its seeds."""
    names = done()
    figure, axes = panels(len(names), width=2.6, height=4.6)
    for index, (axis, name) in enumerate(zip(axes, names, strict=True)):
        rows = ways(TASKS[name])
        shared = _found(name, DEFAULT)
        axis.axvspan(min(shared), max(shared), color=PALETTE[0], alpha=0.15, linewidth=0)
        least = max(min(min(_found(name, way)) for way in rows), max(shared) - 4) - 0.1
        for way in rows:
            found, place = _found(name, way), -list(WAYS).index(way)
            colour = {"wins": PALETTE[2], "loses": PALETTE[1], "ties": GREY}[against(name, way)]
            mean, mark = (np.mean(found), "o") if np.mean(found) > least else (least + 0.1, "<")  # off the scale
            axis.plot([max(min(found), least), max(found)], [place, place], color=colour, linewidth=1.4)
            axis.plot([mean], [place], mark, color=colour, markersize=5)
        axis.set(title=TASKS[name].title, xlabel="test accuracy (%)", xlim=(least, None))
        axis.title.set_fontsize(9)
        axis.set_yticks([-place for place in range(len(WAYS))], list(WAYS) if index == 0 else [])
        axis.set_ylim(-len(WAYS) + 0.5, 0.5)
    save(figure, RESULTS / "comparison.png")


def _listed(way: str) -> str:
    return ", ".join(f"{TASKS[name].title} {np.mean(_found(name, way)):.2f}" for name in done() if _found(name, way))


def claims() -> list[Claim]:
    """The paper's combination against the plain one, and whatever wins."""
    names = [name for name in done() if PAPER in ways(TASKS[name])]
    beats = [name for name in names if against(name, PAPER) == "wins"]
    winners = [
        f"{way} ({TASKS[name].title})" for name in done() for way in ways(TASKS[name]) if against(name, way) == "wins"
    ]
    return [
        Claim(
            f"encoding, Student-t noise and KS denoising beat DPSGD at equal epsilon (here {EPSILON:g})",
            "MNIST: 96.1% at 3.2, its DPSGD needs 6",
            f"{_listed(PAPER)}; L2 with Gaussian noise: {_listed(DEFAULT)}",
            "holds" if beats == names else "does not hold: L2 clipping with Gaussian noise, tuned alike, is ahead",
        ),
        Claim(
            f"some encoder, noise or denoiser beats L2 clipping with Gaussian noise (epsilon {EPSILON:g})",
            "all three",
            "; ".join(winners) or "none beyond the spread of seeds",
            f"partly: {len(winners)} of the ways tried" if winners else "does not hold",
        ),
    ]


def section() -> str:
    """Accuracies of every way on every task, and what `compare` says of the noises."""
    names = done()
    rows = []
    for way in WAYS:
        cells = []
        for name in names:
            found = _found(name, way)
            mark = {"wins": " **wins**", "loses": " loses", "ties": ""}[against(name, way)] if found else ""
            cells.append(f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f}){mark}" if found else "")
        rows.append([way, *cells])
    best = [
        min(KEPT.find(kind="noises", task=name)["rows"].items(), key=_error)[0]
        for name in names
        if not TASKS[name].large
    ]
    trials = len(KEPT.all(kind="trial"))
    return f"""## One budget, many ways

Epsilon {EPSILON:g}, delta 1e-5, Poisson sampling, PLD; test accuracy in percent after the last step, mean and range of
two or three seeds. One thing is changed at a time; what has no word on noise has Gaussian noise. Each way has its own
learning rate, the best of a few on the last sixth of the training part ({trials} trials, listed in
`experiments/results/comparison.json`; three seeds for L2 clipping, one for ranked encoders, which take five times as
long), but at a recipe's size the recipe's. A way wins or loses if all of its seeds are
on one side of all seeds of L2 clipping with Gaussian noise. The noise of the least mean square error that
`noisette compare` finds for the encoded ones: {", ".join(sorted(set(best)))}.

{table(["", *(TASKS[name].title for name in names)], rows)}
{picture("comparison", "Accuracies of all ways on every task, beside the range of L2 clipping with Gaussian noise")}

`python experiments/figures.py comparison` makes it anew.
"""


def _error(row: tuple[str, list[float | None]]) -> float:
    return float("inf") if row[1][0] is None else row[1][0]
