"""The search behind `best`: over kept runs and their lengths, and what it costs after Papernot and Steinke (2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant as reference
from kept import Point
from series import FULL, SERIES, Array
from training import RUNS

from noisette.accounting.rdp import ORDERS, renyi
from noisette.accounting.rdp_classic import epsilon_classic

DELTA, EXAMPLES = 1e-5, {"mnist": 60_000, FULL: 50_000}


@dataclass(frozen=True)
class Candidate:
    """A kept run: its settings, its evaluations, and the Renyi divergences (orders,) of one of its steps."""

    run: Point
    each: Array

    def within(self, budget: float) -> list[tuple[int, float]]:
        """Steps and accuracy of the evaluations whose epsilon, by the paper's accountant, is in the budget."""
        return [(step, right) for step, right in self.run["curve"] if self.epsilon(step) <= budget]

    def epsilon(self, steps: int) -> float:
        """What its first `steps` steps cost, by the paper's accountant."""
        return epsilon_classic(steps * self.each, DELTA)


def candidates(name: str, data: str = "mnist") -> list[Candidate]:
    """Every kept run with the encoder, denoiser and noise law of a series, at any scale and learning rate."""
    one, examples = SERIES[name], EXAMPLES[data]
    base, law = one.recipe(one.headline, data), one.noise.partition("(")[0]
    alike = {"data": base.data, "steps": base.steps, "encoder": one.encoder, "denoiser": one.denoiser}
    runs = RUNS.all(**alike, schedule="constant", seed=0)
    return [
        Candidate(run, renyi((base.changed(noise=run["noise"], steps=1).mechanism(run["parameters"], examples),)))
        for run in runs
        if run["noise"].startswith(law)
    ]


def best(name: str, budget: float, runs: list[Candidate]) -> Point:
    """The most accurate of `runs` within `budget`, and what one of them costs without and with the search."""
    inside = [one for one in runs if one.within(budget)]
    # choosing among the evaluations of a run that is paid to its end in the budget is free: they are all released
    ends = np.max([one.within(budget)[-1][0] * one.each for one in inside], axis=0)
    right, steps, which = max((right, -step, i) for i, one in enumerate(inside) for step, right in one.within(budget))
    searched = repeated(ends, mean=len(inside))
    return {
        "series": name,
        "budget": budget,
        "accuracy": right,
        "noise": inside[which].run["noise"],
        "lr": inside[which].run["lr"],
        "steps": -steps,
        "epsilon": round(inside[which].epsilon(-steps), 4),
        "settings": len(inside),
        "epsilon_alone": round(epsilon_classic(ends, DELTA), 4),
        "epsilon_searched": round(epsilon_classic(searched, DELTA), 4),
    }


def repeated(divergences: Array, mean: float) -> Array:
    """Renyi divergences (orders,) of choosing the best of a Poisson number of runs, each of at most `divergences`.

    Papernot and Steinke (2022), theorem 6: at each order the divergence plus mean * delta + log(mean) / (order - 1),
    where a single run is (log(1 + 1 / (order - 1)), delta)-private.
    """
    deltas = [reference.compute_delta(ORDERS, divergences, math.log1p(1 / (k - 1)))[0] for k in ORDERS.tolist()]
    return np.asarray(divergences + mean * np.array(deltas) + math.log(mean) / (ORDERS - 1))
