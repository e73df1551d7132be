"""People with many examples: MNIST split over 2,000 made-up users, at epsilon 3 for an image and for a user.

``--small`` takes 200 users, scikit-learn's digits, four steps and one seed instead: seconds, and nothing is written.

``python examples/units.py`` trains a softmax regression on pixels, three seeds each, and writes ``examples/units.json``
(``--data-root`` says where MNIST is, ``noisette data fetch mnist`` brings it). About five minutes on one core. How many
images a user has is log-normal: from one to hundreds. The settings were kept as they were after a run with seed 100.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import nn

from noisette import Mechanism, guarantee, make_private, plan
from noisette.app import datasets
from noisette.training import accuracy

USERS, EPSILON, DELTA = 2000, 3.0, 1e-5
OUT = Path(__file__).with_suffix(".json")
SETTINGS = {
    "image": {"batch": 2000, "steps": 150, "lr": 2.0},
    "user, 1 image each": {"batch": 400, "steps": 100, "lr": 2.0, "per_unit": 1},
    "user, 8 images each": {"batch": 400, "steps": 100, "lr": 2.0, "per_unit": 8},
}


def users(images: int, seed: int, count: int) -> np.ndarray:
    """A user for each image (images,): sizes are log-normal, and everybody has at least one image."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(sigma=1.0, size=count)
    ids = np.concatenate([np.arange(count), rng.choice(count, images - count, p=weights / weights.sum())])
    return rng.permutation(ids)


def trained(found: datasets.Dataset, kind: str, seed: int, small: bool = False) -> dict[str, object]:
    """One run; `seed` decides users, batches and noise, so that it can be repeated: not for release."""
    chosen, x, y = SETTINGS[kind], found.train_inputs.flatten(1), found.train_targets
    if small:
        chosen = {**chosen, "batch": 100, "steps": 4}
    ids = users(len(x), seed, 200 if small else USERS) if "per_unit" in chosen else None
    model = nn.Linear(x.shape[1], 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    budget = {"epsilon": EPSILON, "delta": DELTA, "batch": chosen["batch"], "steps": chosen["steps"]}
    mechanism: Mechanism = plan(model, (x, y), units=ids, **budget)
    own = {} if ids is None else {"units": ids, "per_unit": chosen["per_unit"]}
    private = make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism, seed=seed, **own)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen["lr"], momentum=0.5)
    for _ in track(private, f"{kind}, seed {seed}", private.total):
        optimizer.step()
    promise = guarantee(mechanism, DELTA)
    return {
        "kind": kind,
        "seed": seed,
        **chosen,
        "accuracy": accuracy(model, found.test_inputs.flatten(1), found.test_targets),
        "epsilon": promise.epsilon,
        "delta": DELTA,
        "adjacency": promise.adjacency,
        "mechanism": repr(mechanism),
        "largest_user": None if ids is None else int(np.bincount(ids).max()),
    }


def main(
    small: bool = False, data_root: str | None = None, seeds: Sequence[int] = (1, 2, 3), out: Path = OUT
) -> list[dict[str, object]]:
    found, seeds = datasets.load("digits" if small else "mnist", data_root), seeds[:1] if small else seeds
    runs = []
    for kind in SETTINGS:
        for seed in seeds:
            runs.append(trained(found, kind, seed, small))
            if not small:
                keep(runs, seeds, out)
    for kind in SETTINGS:
        of_kind = [run for run in runs if run["kind"] == kind]
        values = [run["accuracy"] for run in of_kind]
        promise = f"epsilon = {of_kind[0]['epsilon']:.4g}, {of_kind[0]['adjacency']}"
        print(f"{kind}: {np.mean(values):.2%} ({min(values):.2%} to {max(values):.2%}); {promise}")
    return runs


def keep(runs: list[dict[str, object]], seeds: Sequence[int], out: Path) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    told = {"command": f"python examples/units.py --seeds {' '.join(map(str, seeds))}", "commit": commit}
    out.write_text(json.dumps({**told, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true")
    asked.add_argument("--data-root", default=None)
    asked.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    asked.add_argument("--out", type=Path, default=OUT)
    main(**vars(asked.parse_args()))
