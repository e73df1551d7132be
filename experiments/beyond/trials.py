"""Trials and runs of the ways to spend a budget; each is kept as soon as it is done."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from beyond.common import one_run
from beyond.variants import MOST_TRIALS, TASKS, WAYS, examples, mechanism, recipe_of
from kept import Kept


def tuned(kept: Kept, name: str, way: str, stepped: Callable[[int], None]) -> float:
    """The best of three rates, a factor of two apart, and of more further out while the best one is at the edge.

    L2 clipping has three seeds a trial and ranked encoders, which take five times as long, have one: where that is
    unfair, it is so to what should beat L2 clipping.
    """
    first = TASKS[name].lr * WAYS[way].times
    rates = sorted({first / 2, first, first * 2, *tried_rates(kept, name, way)})  # what is kept gets all seeds as well
    seeds = 3 if TASKS[name].linear and not WAYS[way].profiles else 1
    while rates:
        for lr, seed in itertools.product(rates, range(seeds)):
            keep(kept, "trial", name, way, lr, seed, stepped)
        tried = tried_rates(kept, name, way)
        best = max(tried, key=lambda lr: tried[lr])
        ahead = {min(tried): [min(tried) / 2], max(tried): [max(tried) * 2]}
        rates = ahead.get(best, []) if len(tried) < MOST_TRIALS else []
    return best


def tried_rates(kept: Kept, name: str, way: str) -> dict[float, float]:
    """Every rate that was tried, and its mean accuracy on held-out training examples."""
    found: dict[float, list[float]] = {}
    for trial in kept.all(kind="trial", task=name, way=way):
        found.setdefault(trial["lr"], []).append(trial["accuracy"])
    return {lr: statistics.mean(right) for lr, right in found.items()}


def keep(kept: Kept, kind: str, name: str, way: str, lr: float, seed: int, stepped: Callable[[int], None]) -> None:
    """One trial, on held-out training examples, or one run, on test examples, unless it is there."""
    key: dict[str, Any] = {"kind": kind, "task": name, "way": way, "lr": lr, "seed": seed}
    if kept.has(**key):
        return
    task, began = TASKS[name], time.monotonic()
    train, held, _ = examples(task)
    if kind == "trial":
        edge = len(train[0]) * 5 // 6
        train, held = (train[0][:edge], train[1][:edge]), (train[0][edge:], train[1][edge:])
    law = mechanism(task, way, len(train[0]))
    right, spent = one_run(recipe_of(task, way, lr), law, train, held, seed, stepped)
    kept.add({**key, "accuracy": right, "spent": spent, "seconds": round(time.monotonic() - began, 1)})
