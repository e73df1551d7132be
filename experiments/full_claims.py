"""What the paper claims of CIFAR-10 at full length, beside the runs that are there."""

from __future__ import annotations

import paper
import series
from beside import CLOSE, at, comes_back
from best import needed, told
from convergence import iterations, reached
from kept import Claim, Kept
from long import NAMES
from series import FULL, SERIES

KEPT = Kept("long_best")
SPOKEN = 54.0
BEST = 55.0
"""Accuracies in percent of which the claims speak: to be reached soon, and at a small budget."""


def claims() -> list[Claim]:
    """Of the runs that are there: whether the paper's curves come back, and encoding is ahead of DPSGD, and faster."""
    have = series.present(NAMES, FULL)
    found = [comes_back(name, FULL) for name in have if name != "dpsgd"]
    if "dpsgd" in have and len(have) > 1:
        found += [*(_ahead(name) for name in have[:-1]), _faster(have[0])]
    return found + [_thrifty()] * (KEPT.has(series="encoded_student_t") and KEPT.has(series="dpsgd"))


def _ahead(name: str) -> Claim:
    runs = {one: SERIES[one].kept(SERIES[one].headline, FULL) for one in (name, "dpsgd")}
    theirs = {one: at(one, found[0]["epsilon_rdp"], FULL) for one, found in runs.items()}
    gap = series.last(runs[name]) - series.last(runs["dpsgd"])
    return Claim(
        f"DPSGD is less accurate than {SERIES[name].label} (CIFAR-10, T = 19,531, {SERIES[name].headline:g} and 1.1)",
        f"{theirs['dpsgd']:.2f}% against {theirs[name]:.2f}%",
        f"{series.spread(runs['dpsgd'])} against {series.spread(runs[name])}",
        f"{'holds' if gap > CLOSE else 'does not hold'}: {gap:+.2f} points",
    )


def _faster(name: str) -> Claim:
    ours = {one: reached(*SERIES[one].curve(FULL), SPOKEN) for one in (name, "dpsgd")}
    theirs = {one: reached(*paper.curve("convergence_cifar10", one)[::-1], SPOKEN) for one in (name, "dpsgd")}
    return Claim(
        f"Encoding and denoising reach an accuracy in fewer iterations than DPSGD (CIFAR-10, {SPOKEN:g}%)",
        f"{iterations(theirs[name])} against {iterations(theirs['dpsgd'])}",
        f"{iterations(ours[name])} against {iterations(ours['dpsgd'])}",
        "holds" if ours[name] < ours["dpsgd"] else "does not hold",
    )


def _thrifty() -> Claim:
    student, dpsgd = (needed(KEPT.all(series=name), BEST) for name in ("encoded_student_t", "dpsgd"))
    return Claim(
        f"Encoding with Student-t noise needs a smaller budget than DPSGD for {BEST:g}% (CIFAR-10, best settings)",
        "epsilon 3 against 4.2",
        f"epsilon {told(student, 9.5)} against {told(dpsgd, 9.5)}",
        "holds" if student < dpsgd else "does not hold",
    )
