"""What tuning and measuring share: the data of a recipe, and one run of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from noisette import data as datasets
from noisette import models
from noisette.data import Dataset
from noisette.mechanism import Mechanism
from noisette.recipes import Recipe
from noisette.recipes.inputs import Inputs
from noisette.training import Trainer, accuracy, make_private

RESULTS = Path(__file__).parents[1] / "results" / "beyond"


def seen_by(recipe: Recipe) -> tuple[Dataset, Inputs]:
    """The data set of a recipe, and its features from the cache."""
    data = datasets.load(recipe.data)
    with tempfile.TemporaryDirectory() as nowhere:
        return data, Inputs.of(recipe, data, Path(nowhere))


def one_run(
    recipe: Recipe, mechanism: Mechanism, train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], seed: int
) -> tuple[float, float]:
    """Accuracy on the examples `held` at the last step of a run on `train`, and the epsilon spent."""
    model = models.build(recipe.model, tuple(train[0].shape[1:]), 10, seed=recipe.model_seed)
    private = make_private(model, nn.CrossEntropyLoss(), *train, mechanism, chunk=recipe.chunk, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, private.total))
    for _ in Trainer(model, private, optimizer, decay).run():
        pass
    return accuracy(model, *held), private.guarantee(recipe.delta).epsilon
