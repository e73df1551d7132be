"""One run of a search: trained and scored in a folder of its own, which is private."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from noisette import _io
from noisette.accounting import read_ledger
from noisette.app import datasets
from noisette.app.datasets import Dataset
from noisette.app.datasets._published_files import cache_folder
from noisette.app.features import transform_cached
from noisette.app.recipes.recipe import Recipe
from noisette.app.recipes.tasks import Task
from noisette.app.runs.run_folder import reopen
from noisette.app.runs.training_run import OpenRun
from noisette.app.tuning.plan import Plan
from noisette.errors import InvalidInput, LedgerError
from noisette.private_means import private_means
from noisette.training import answers
from noisette.training._units import encode_ids

__all__ = ["PRIVATE", "best", "make", "place", "public_examples", "score", "score_at"]

PRIVATE = "private"
"""The part of a search's folder that is not for release."""


def place(folder: Path, number: int) -> Path:
    """Where run `number` of the search in `folder` is."""
    return folder / PRIVATE / f"trial-{number:06d}"


def make(folder: Path, seed: int | None, threads: int | None, number: int) -> None:
    """Train and score run `number` of the search in `folder`, or go on with it. What is done already stays.

    `seed` makes runs that can be repeated and must not be released.
    """
    plan, here = Plan.read(folder), place(folder, number)
    if read_ledger(folder / "ledger.jsonl").spent(plan.search) < 1:
        raise LedgerError(f"the search in {folder} is not paid for.", hint="start it with noisette tune")
    if (here / "score.json").exists():
        return
    if threads is not None:
        torch.set_num_threads(threads)
    own = None if seed is None else int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4])
    opened = reopen(here, seed=own)
    try:
        if opened.mechanism not in plan.search.runs:
            raise InvalidInput(f"{here} is not a run of its search.", hint="restore its mechanism.toml")
        if "inexact" in opened.private.flags and not plan.inexact:
            raise InvalidInput(
                "here an example may change how others are rounded, which was not so where the search was planned.",
                hint="go on where it was planned, with as many jobs",
            )
        opened.resume()
        for _ in opened.points():
            pass
        value = score(plan, opened, own)
        _io.write(here / "score.json", json.dumps({"score": None if math.isnan(value) else value}).encode())
    finally:
        opened.close()


def score(plan: Plan, opened: OpenRun, seed: int | None = None) -> float:
    """How right a trained run is, in [0, 1], on public data, or a private release of that on what was held out.

    How it does on test data does not matter: the winner's would no longer be that of a model chosen without it.
    """
    model, seen = opened.trainer.evaluated, opened.seen
    device = next(model.parameters()).device
    task = opened.assembly.task
    if plan.public is not None:
        root = plan.settings.data_root
        inputs, targets = public_examples(plan.public, None if root is None else Path(root), opened.recipe)
        if seen.fixed is not None:
            inputs = transform_cached(seen.fixed, inputs, cache_folder())
        return float(task.scores(answers(model, inputs.to(device)), targets.to(device)).mean())
    if seen.held is None or plan.search.score is None:
        raise InvalidInput("no examples are held out to choose by.", hint="restore the recipe of the run")
    right = _right(task, model, seen.held, device)[:, None]
    return float(private_means(right, torch.zeros(1), torch.ones(1), plan.search.score, seed=seed).values[0])


def _right(task: Task, model: nn.Module, held: Dataset, device: torch.device) -> Tensor:
    """How right the model is for everybody in `held` (N,), in [0, 1]: the mean over their examples."""
    right = task.scores(answers(model, held.train_inputs.to(device)), held.train_targets.to(device)).cpu()
    if held.train_units is None:
        return right
    whose = torch.from_numpy(encode_ids(held.train_units))
    return torch.bincount(whose, weights=right) / torch.bincount(whose)


def public_examples(name: str, root: str | Path | None, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """All examples of the public data set `name`: inputs (M, ...) and targets like those of `recipe`."""
    data = datasets.load(name, root, recipe.unit, recipe.target_bounds)
    return torch.cat([data.train_inputs, data.test_inputs]), torch.cat([data.train_targets, data.test_targets])


def score_at(here: Path) -> float:
    """The score of the run at `here`, NaN where it is not a number."""
    found = _io.record(here / "score.json").get("score")
    return math.nan if found is None else float(found)


def best(scores: Sequence[float]) -> int | None:
    """Which of `scores` is the largest: of equal ones the first, and one that is not a number only without others.

    >>> best([0.5, math.nan, 0.7, 0.7]), best([math.nan, math.nan]), best([])
    (2, 0, None)
    """
    known = [-math.inf if math.isnan(one) else one for one in scores]
    return max(range(len(known)), key=lambda i: known[i]) if known else None
