"""What tuning, measuring and comparing share: the data of a recipe, and one run of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noisette import data as datasets
from noisette import models
from noisette.data import Dataset
from noisette.denoise import Denoiser
from noisette.files import write
from noisette.mechanism import Mechanism
from noisette.recipes import Recipe
from noisette.recipes.inputs import Inputs
from noisette.spec import parse
from noisette.training import Trainer, accuracy, make_private

RESULTS = Path(__file__).parents[1] / "results" / "beyond"

Examples = tuple[Tensor, Tensor]


def kept(path: Path) -> list[dict[str, Any]]:
    """The entries of a file of results; none where there is no file."""
    return json.loads(path.read_text()) if path.exists() else []


def keep(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write them, one a line; a crash leaves the file as it was."""
    write(path, ("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n").encode())


def seen_by(recipe: Recipe) -> tuple[Dataset, Inputs]:
    """The data set of a recipe, and its features from the cache."""
    data = datasets.load(recipe.data)
    with tempfile.TemporaryDirectory() as nowhere:
        return data, Inputs.of(recipe, data, Path(nowhere))


def one_run(
    recipe: Recipe,
    mechanism: Mechanism,
    train: Examples,
    held: Examples,
    seed: int,
    stepped: Callable[[int], None] = lambda _: None,
) -> tuple[float, float]:
    """Accuracy on the examples `held` at the last step of a run on `train`, and the epsilon spent.

    `stepped` is told the number of every step that is done.
    """
    shape, classes = tuple(train[0].shape[1:]), int(held[1].max()) + 1
    model = models.build(recipe.model, shape, classes, seed=recipe.model_seed, **recipe.model_options)
    denoiser = parse(recipe.denoiser, Denoiser)
    loss = nn.CrossEntropyLoss()
    private = make_private(model, loss, train, mechanism, denoiser=denoiser, chunk=recipe.chunk, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, private.total))
    for progress in Trainer(private, optimizer, decay).run():
        stepped(progress.updates)
    return accuracy(model, *held), private.guarantee(recipe.delta).epsilon
