"""A small convolutional network on maps of features, at the size at which `comparison` trains softmax regression.

MNIST, epsilon 1, 100 steps of 4,096 examples, judged on the last sixth of the training part, as the trials in
results/comparison.json are. Every finished run is one entry of experiments/results/beyond/maps.json; what is there is
not run again.

    python experiments/beyond/maps.py
"""

from __future__ import annotations

import itertools

from common import RESULTS, keep, kept, one_run

from noisette.app.recipes import Recipe
from noisette.app.runs import ModelInputs, RunBuilder

FEATURES = "Scattering(pictures='strokes', axes=30, whitening=0.5, count=1000, maps=True)"
RATES = (20.0, 60.0, 200.0)
SEEDS = (0, 1, 2)


def main() -> None:
    """Run what is missing, and print it."""
    base = Recipe.load("mnist").changed(
        epsilon=1.0, steps=100, batch=4096, features=FEATURES, model="maps_cnn", model_options={}, chunk=256
    )
    made = RunBuilder(base, ModelInputs.of(base).data)
    edge = len(made.train[0]) * 5 // 6
    train, held = (tuple(all_of[part] for all_of in made.train) for part in (slice(edge), slice(edge, None)))
    mechanism = made.plan(edge)
    path = RESULTS / "maps.json"
    done = kept(path)
    for lr, seed in itertools.product(RATES, SEEDS):
        trial = {"features": FEATURES, "lr": lr, "seed": seed}
        if any(trial.items() <= one.items() for one in done):
            continue
        right, spent = one_run(base.changed(lr=lr), mechanism, train, held, seed)
        done.append(trial | {"validation": right, "spent": spent})
        keep(path, done)
        print(done[-1], flush=True)


if __name__ == "__main__":
    main()
