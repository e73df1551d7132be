"""What the pages draw: a membership test, a run's progress, runs beside each other, and a ledger that fills up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from noisette._guarantee import ALARMS, percent, rounded_up
from noisette.app.reports._svg import Plot, dots
from noisette.app.reports.run import Run

__all__ = ["draw_found", "draw_progress", "draw_runs", "draw_spending", "draw_test"]


def draw_found(run: Run) -> Markup:
    """A hundred rows or people in the data, and how many of them the best test finds with 1% of false alarms."""
    most = math.ceil(100 * run.found(ALARMS[0]) - 1e-9)
    return dots("found", f"{most} of 100 dots filled: those that the best test with 1% of false alarms can find", most)


def draw_test(run: Run) -> Markup:
    """The share that any test can find at most, against its share of false alarms."""
    told = " and ".join(f"{percent(run.found(alarms))} with {alarms:.0%}" for alarms in ALARMS)
    plot = Plot(
        "test",
        f"The most that any test can find, against its false alarms: {told}. Blind guesses lie on the diagonal.",
        right=1.0,
        top=1.0,
        across="false alarms among all others",
        up="found of those in the data",
        number="{:.0%}".format,
        height="{:.0%}".format,
    )
    rates = np.concatenate([np.linspace(0, 0.05, 26), np.linspace(0.05, 1, 77)[1:]])
    best = list(zip(rates.tolist(), (1 - run.curve.false_negative(rates)).tolist(), strict=True))
    plot.area([(0.0, 0.0), *best], "gain")
    plot.line([(0, 0), (1, 1)], "guess")
    plot.line(best, "best")
    plot.words(0.72, 0.6, "blind guesses", "start")
    for alarms in ALARMS:
        value = run.found(alarms)
        plot.dot(alarms, value, "hit", f"{percent(value)} at {alarms:.0%}")
    return plot.svg()


def draw_progress(run: Run) -> Markup | None:
    """What was measured on public test data over steps; None where there is no test part."""
    points = [(point.updates, point.measured.value) for point in run.points if point.measured is not None]
    found = run.measured
    if found is None:
        return None
    last, share = points[-1], found.key == "accuracy"
    plot = Plot(
        "progress",
        f"Test {found.name} over steps: {found.text} after {last[0]:,} steps.",
        right=last[0] * 1.05 or 1.0,
        top=1.0 if share else max(value for _, value in points) * 1.15 or 1.0,
        across="steps",
        up=f"test {found.name}",
        height="{:.0%}".format if share else "{:.4g}".format,
    )
    plot.line(points, "best")
    plot.dot(*last, "hit", found.text, side="left")
    return plot.svg()


def draw_runs(runs: Sequence[tuple[int, float, float]]) -> Markup | None:
    """Accuracy against epsilon, a numbered dot for every run: (number, epsilon, accuracy)."""
    if not runs:
        return None
    least, most = min(right for *_, right in runs), max(right for *_, right in runs)
    plot = Plot(
        "runs",
        f"Test accuracy against epsilon of {len(runs)} runs, from {least:.1%} to {most:.1%}; the table has them all.",
        right=max(epsilon for _, epsilon, _ in runs) * 1.15 or 1.0,
        top=1.0,
        across="epsilon",
        up="test accuracy",
        height="{:.0%}".format,
    )
    for number, epsilon, right in runs:
        plot.dot(epsilon, right, "hit", str(number))
    return plot.svg()


def draw_spending(name: str, people: str, totals: Sequence[float]) -> Markup:
    """Epsilon of all runs on the same people together, after each of them: a line that fills up."""
    plot = Plot(
        name,
        f"Epsilon of all runs on {people} together, run after run: {', '.join(map(rounded_up, totals))}.",
        right=len(totals) + 0.4,
        top=totals[-1] * 1.15 or 1.0,
        across="runs, in the order of their ends",
        up="epsilon together",
        number=lambda value: f"{value:.0f}" if value == int(value) else "",
    )
    corners: list[tuple[float, float]] = [(0.0, 0.0)]
    for number, total in enumerate(totals, start=1):
        corners += [(number, corners[-1][1]), (number, total)]
    corners.append((len(totals) + 0.4, totals[-1]))
    plot.area([*corners, (len(totals) + 0.4, 0.0)], "gain")
    plot.line(corners, "best")
    plot.dot(len(totals), totals[-1], "hit", rounded_up(totals[-1]), side="left")
    return plot.svg()
