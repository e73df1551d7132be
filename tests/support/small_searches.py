"""Searches that are small enough to be made in a test: a linear model of digits, five steps a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisette.accounting.num_trials import NumTrials, num_trials_from_name
from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs
from noisette.app.tuning import resume_search, start_search
from noisette.app.tuning.search import TuneResult

TINY = Recipe(
    name="tiny", data="digits", model="linear", encoder="L2()", noise="Gaussian()", batch=300, lr=1.0, steps=5,
    epsilon=3.0, chunk=512, evaluations=1,
)  # fmt: skip
GRID = {"lr": [0.5, 1.0, 2.0]}


def prepared(root: Path, *, trials: NumTrials | None = None, seed: int | None = 4, **options: Any) -> Path:
    """A search that has drawn its runs and made none."""
    options = {"candidates": GRID, "epsilon": 3.0, "recipe": TINY} | options
    recipe, candidates = options.pop("recipe"), options.pop("candidates")
    return start_search(
        root, recipe, candidates, trials=trials or num_trials_from_name("geometric", 3), seed=seed, **options
    )


def searched(root: Path, **options: Any) -> tuple[Path, TuneResult]:
    folder = prepared(root, **options)
    return folder, resume_search(folder, seed=options.get("seed", 4))


def by_public_score(root: Path) -> dict[str, Any]:
    """Options of a search that is planned in a moment: a private table of 50 digits, and a public one to choose by."""
    data = ModelInputs.of(TINY).data
    rows = torch.cat([data.train_targets[:50, None].float(), data.train_inputs[:50].flatten(1)], dim=1)
    names = ",".join(["label", *(f"p{i}" for i in range(64))])
    for name in ("private", "public"):
        text = "\n".join([names, *(",".join(f"{x:g}" for x in row) for row in rows.tolist())])
        (root / f"{name}.csv").write_text(text + "\n")
    recipe = TINY.changed(data=f"csv:{root / 'private.csv'}:label", batch=20)
    return {"recipe": recipe, "public": f"csv:{root / 'public.csv'}:label", "delta": 1e-3}


def of_people(root: Path) -> dict[str, Any]:
    """Options of a search for 150 people with 1,200 rows; some have one, and one of them has 300."""
    generator, path = np.random.default_rng(0), root / "visits.csv"
    who = np.concatenate([np.arange(150), np.full(299, 3), generator.integers(150, size=751)])
    rows = (f"p{one},{generator.normal():.3f},{generator.normal():.3f},{generator.integers(2)}" for one in who)
    path.write_text("who,a,b,label\n" + "\n".join(rows) + "\n")
    return {"recipe": TINY.changed(data=f"csv:{path}:label", unit="who", batch=30), "delta": 1e-3}
