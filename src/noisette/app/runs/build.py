"""The assembly of a run: model, plan, private run and trainer of a recipe are put together here and nowhere else.

The command line, the audit of one run and the experiments differ in where their examples come from (`ModelInputs.of`
has a recipe's own) and in what they do with the trainer. What is trained is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from noisette._gradients import trained_parameters
from noisette._spec import parse
from noisette.accounting import Ledger
from noisette.app import models
from noisette.app.datasets import Dataset
from noisette.app.recipes.optimizers import optimizer_of
from noisette.app.recipes.recipe import Recipe
from noisette.app.recipes.tasks import task_of
from noisette.denoisers import Denoiser
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.training import Trainer, answers, make_private

__all__ = ["RunBuilder", "model_of"]


class RunBuilder:
    """A recipe with its examples and its model, on a device; `trainer` trains that model, in place.

    `data` holds examples as the model sees them: of a recipe with features, these.

    >>> from noisette.app.runs.inputs import ModelInputs
    >>> recipe = Recipe.load("digits").changed(noise="Gaussian(scale=9.0)", steps=2)
    >>> made = RunBuilder(recipe, ModelInputs.of(recipe).data)
    >>> made.plan().encoder
    L2(dim=4810, radius=1.0, micro_batch=1)
    >>> [progress.updates for progress in made.trainer(made.plan()).run()]
    [1, 2]
    """

    def __init__(self, recipe: Recipe, data: Dataset, device: str = "cpu") -> None:
        self.recipe, self.task = recipe, task_of(recipe, data.classes)
        self.data = replace(
            data,
            train_inputs=data.train_inputs.to(device),
            train_targets=data.train_targets.to(device),
            test_inputs=data.test_inputs.to(device),
            test_targets=data.test_targets.to(device),
        )
        self.model = model_of(recipe, data.shape, data.classes).to(device)
        if recipe.target_bounds is not None:
            found = tuple(answers(self.model, torch.zeros(2, *data.shape, device=device)).shape)
            if found != (2, 1):  # the loss would spread a number over whatever there is
                raise InvalidInput(
                    f"{recipe.model} gives {found} of 2 examples, not one number for each.",
                    hint="let it end in (N, 1), as nn.Linear(..., 1) does",
                )

    @property
    def train(self) -> tuple[Tensor, Tensor]:
        """Training inputs (N, ...) and targets (N,) or, of numbers, (N, 1), which are private."""
        return self.data.train_inputs, self.data.train_targets

    @property
    def test(self) -> tuple[Tensor, Tensor]:
        """Test inputs (M, ...) and targets alike, which are public."""
        return self.data.test_inputs, self.data.test_targets

    def plan(self, examples: int | None = None) -> Mechanism:
        """The recipe's mechanism for this model and a public number of `examples`, or units: by default all at hand."""
        there = self.data.sampled if examples is None else examples
        return self.recipe.mechanism(trained_parameters(self.model), there)

    def trainer(
        self,
        mechanism: Mechanism,
        train: tuple[Tensor, Tensor] | None = None,
        *,
        ledgers: Sequence[Ledger] = (),
        seed: int | None = None,
    ) -> Trainer:
        """A trainer by `mechanism` on the inputs (N, ...) and targets (N,) of `train`, by default those at hand."""
        recipe, data = self.recipe, train or self.train
        private = make_private(
            self.model,
            self.task.loss,
            data,
            mechanism,
            units=self.data.train_units,
            per_unit=recipe.per_unit,
            denoiser=parse(recipe.denoiser, Denoiser),
            ledger=ledgers,
            chunk=min(recipe.chunk, len(data[0])),
            seed=seed,
        )
        optimizer = optimizer_of(recipe, self.model)
        total = private.total
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step, total))
        return Trainer(private, optimizer, scheduler, averaging=recipe.averaging)


def model_of(recipe: Recipe, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model of `recipe`, with its first weights, for examples of `shape` as the model sees them."""
    return models.build(recipe.model, shape, classes, seed=recipe.model_seed, **recipe.model_options)
