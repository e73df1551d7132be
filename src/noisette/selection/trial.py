"""One run of a search: trained and scored in a folder of its own, which is private."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from noisette import data as datasets
from noisette import files
from noisette.account import read_ledger
from noisette.data.files import cache_folder
from noisette.errors import InvalidInput, LedgerError
from noisette.features import cached
from noisette.recipes.folder import reopen
from noisette.recipes.open_run import OpenRun
from noisette.selection.planning import Plan
from noisette.statistics import private_means
from noisette.training import accuracy

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
        opened.resume()
        for _ in opened.points():
            pass
        value = score(plan, opened, own)
        files.write(here / "score.json", json.dumps({"score": None if math.isnan(value) else value}).encode())
    finally:
        opened.close()


def score(plan: Plan, opened: OpenRun, seed: int | None = None) -> float:
    """How good a trained run is: its accuracy on public data, or a private release of that on what was held out.

    Which test accuracy it has does not matter: the winner's would no longer be that of a model chosen without it.
    """
    model, seen = opened.trainer.evaluated, opened.seen
    device = next(model.parameters()).device
    if plan.public is not None:
        root = plan.settings.data_root
        inputs, targets = public_examples(plan.public, None if root is None else Path(root))
        if seen.fixed is not None:
            inputs = cached(seen.fixed, inputs, cache_folder())
        return accuracy(model, inputs.to(device), targets.to(device))
    if seen.held is None or plan.search.score is None:
        raise InvalidInput("no examples are held out to choose by.", hint="restore the recipe of the run")
    inputs, targets = seen.held
    was, rows = model.training, []
    model.eval()
    with torch.no_grad():
        for x, y in zip(torch.split(inputs, 1000), torch.split(targets, 1000), strict=True):
            rows.append((model(x.to(device)).argmax(dim=1).cpu() == y).double())
    model.train(was)
    right = torch.cat(rows)[:, None]
    return float(private_means(right, torch.zeros(1), torch.ones(1), plan.search.score, seed=seed).values[0])


def public_examples(name: str, root: Path | None) -> tuple[torch.Tensor, torch.Tensor]:
    """All examples of the public data set `name`: inputs (M, ...) and targets (M,)."""
    data = datasets.load(name, root)
    return torch.cat([data.train_inputs, data.test_inputs]), torch.cat([data.train_targets, data.test_targets])


def score_at(here: Path) -> float:
    """The score of the run at `here`, NaN where it is not a number."""
    found = files.record(here / "score.json").get("score")
    return math.nan if found is None else float(found)


def best(scores: Sequence[float]) -> int | None:
    """Which of `scores` is the largest: of equal ones the first, and one that is not a number only without others.

    >>> best([0.5, math.nan, 0.7, 0.7]), best([math.nan, math.nan]), best([])
    (2, 0, None)
    """
    known = [-math.inf if math.isnan(one) else one for one in scores]
    return max(range(len(known)), key=lambda i: known[i]) if known else None
