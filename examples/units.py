"""People with many examples: MNIST split over 2,000 made-up users, at epsilon 3 for an image and for a user.

``python examples/units.py`` trains a softmax regression on pixels, three seeds each, and writes ``examples/units.json``
(``--data-root`` says where MNIST is, ``noisette data fetch mnist`` brings it). About five minutes on one core. How many
images a user has is log-normal: from one to hundreds. The settings were kept as they were after a run with seed 100.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import nn

from noisette import Mechanism, data, guarantee, make_private, plan
from noisette.training import accuracy

USERS, EPSILON, DELTA = 2000, 3.0, 1e-5
SETTINGS = {
    "image": {"batch": 2000, "steps": 150, "lr": 2.0},
    "user, 1 image each": {"batch": 400, "steps": 100, "lr": 2.0, "per_unit": 1},
    "user, 8 images each": {"batch": 400, "steps": 100, "lr": 2.0, "per_unit": 8},
}


def users(images: int, seed: int) -> np.ndarray:
    """A user for each image (images,): sizes are log-normal, and everybody has at least one image."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(sigma=1.0, size=USERS)
    ids = np.concatenate([np.arange(USERS), rng.choice(USERS, images - USERS, p=weights / weights.sum())])
    return rng.permutation(ids)


def trained(found: data.Dataset, kind: str, seed: int) -> dict[str, object]:
    """One run; `seed` decides users, batches and noise, so that it can be repeated: not for release."""
    chosen, x, y = SETTINGS[kind], found.train_inputs.flatten(1), found.train_targets
    ids = users(len(x), seed) if "per_unit" in chosen else None
    model = nn.Linear(784, 10)
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data-root", default=None)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    chosen = options.parse_args()
    found = data.load("mnist", chosen.data_root)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    told = {"command": f"python examples/units.py --seeds {' '.join(map(str, chosen.seeds))}", "commit": commit}
    runs = []
    for kind in SETTINGS:
        for seed in chosen.seeds:
            runs.append(trained(found, kind, seed))
            chosen.out.write_text(json.dumps({**told, "runs": runs}, indent=1) + "\n")
    for kind in SETTINGS:
        values = [run["accuracy"] for run in runs if run["kind"] == kind]
        print(f"{kind}: {np.mean(values):.2%} ({min(values):.2%} to {max(values):.2%})")


if __name__ == "__main__":
    main()
