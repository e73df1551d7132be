"""Accuracy at the last step by epsilon, beside the paper's curves: points of a figure, and whether they come back."""

from __future__ import annotations

import numpy as np
import paper
import series
from kept import Claim
from matplotlib.axes import Axes
from series import SERIES, Array, Series

WHOLE = {"mnist": "MNIST, T = 14,062", series.FULL: "CIFAR-10, T = 19,531"}
"""What was trained as long as the paper trains it."""
CLOSE = 0.5
"""Points of accuracy below which two series count as equal: what one run wobbles by from epoch to epoch."""


def at(name: str, epsilon: float, data: str = "mnist") -> float:
    """The paper's accuracy in percent at an epsilon, on the line between its points; outside of them at the nearest."""
    return float(np.interp(epsilon, *_curve(name, data)))


def told(name: str, epsilon: float, data: str = "mnist") -> str:
    """The same as text, which names the epsilon of the paper's point where ours is beyond its curve.

    >>> told("dpsgd", 4.34, series.FULL), told("dpsgd", 11.5, series.FULL)
    ('55.27', '55.85 at 7.10')
    """
    budget, _ = _curve(name, data)
    nearest = float(np.clip(epsilon, budget[0], budget[-1]))
    return f"{at(name, epsilon, data):.2f}" + f" at {nearest:.2f}" * (abs(nearest - epsilon) > 0.01)


def _curve(name: str, data: str) -> tuple[Array, Array]:
    """The paper's epsilons (n,), ascending, and accuracies (n,)."""
    right, budget = paper.curve(f"fixed_epochs_{data.partition('_')[0]}", name)
    order = np.argsort(budget)
    return budget[order], right[order]


def show(axis: Axes, one: Series, data: str, label: str | None) -> None:
    """The points of a series; a bar spans the seeds."""
    groups = [one.kept(scale, data) for scale in one.levels(data)]
    means = np.array([series.last(runs) for runs in groups])
    found = [[run["accuracy"] for run in runs] for runs in groups]
    ends = np.array([(min(some), max(some)) for some in found]).reshape(-1, 2).T
    where = [runs[0]["epsilon_rdp"] for runs in groups]
    bars = np.abs(ends - means)
    axis.errorbar(where, means, bars, color=one.colour, marker="o", markersize=4, capsize=3, label=label)


def comes_back(name: str, data: str = "mnist") -> Claim:
    """Whether the paper's curve is reached at every scale that is not beyond its end."""
    one, end = SERIES[name], max(_curve(name, data)[0])
    groups = [runs for scale in one.levels(data) if (runs := one.kept(scale, data))[0]["epsilon_rdp"] <= end]
    theirs = [at(name, runs[0]["epsilon_rdp"], data) for runs in groups]
    gaps = [series.last(runs) - right for runs, right in zip(groups, theirs, strict=True)]
    return Claim(
        f"The curve of {one.label} ({WHOLE[data]}) comes back within a point, or is exceeded",
        ", ".join(f"{right:.2f}%" for right in theirs),
        ", ".join(f"{series.last(runs):.2f}% at epsilon {runs[0]['epsilon_rdp']:.2f}" for runs in groups),
        f"{'holds' if min(gaps) >= -1 else 'does not hold'}: "
        + ", ".join(f"{gap:+.2f}" for gap in gaps)
        + " points against the curve",
    )
