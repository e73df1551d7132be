"""What the model of a recipe is trained for, a class or a number: its loss, and how right its answers are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from noisette.app.recipes.recipe import Recipe

__all__ = ["Classification", "Regression", "Scale", "Task", "task_of"]


class Task(ABC):
    """A loss, one for each example, and a measure of the answers."""

    loss: ClassVar[nn.Module]
    """Of a batch, the mean over its examples."""
    measure: ClassVar[str]
    """The name of what `measured` gives, among the fields of a point."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example (N,), for outputs (N, C) of a model."""

    @abstractmethod
    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How right each answer is (N,), in [0, 1] whatever the outputs (N, C): for scores, and so for noisy ones."""

    @abstractmethod
    def measured(self, right: float) -> float:
        """The measure, from the mean of `rights`."""

    @abstractmethod
    def constant(self, targets: Tensor) -> float:
        """The measure of giving one answer to all, whichever is best for these `targets`."""

    @abstractmethod
    def wrong_targets(self, targets: Tensor, draws: Tensor) -> Tensor:
        """Targets that are not those of the examples, by uniform `draws` (N,) in (0, 1]."""


@final
@dataclass(frozen=True)
class Classification(Task):
    """One of `classes` classes; targets are numbers of classes (N,).

    >>> Classification(3).scores(torch.eye(3), torch.tensor([0, 1, 1])).tolist()
    [1.0, 1.0, 0.0]
    """

    classes: int
    loss = nn.CrossEntropyLoss()
    measure = "accuracy"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).double()

    def measured(self, right: float) -> float:
        return right

    def constant(self, targets: Tensor) -> float:
        return float(targets.bincount().max()) / len(targets)

    def wrong_targets(self, targets: Tensor, draws: Tensor) -> Tensor:
        other = 1 + (draws * (self.classes - 1)).long().clamp(max=self.classes - 2)
        return (targets + other) % self.classes


@final
@dataclass(frozen=True)
class Regression(Task):
    """A number between public bounds, which outputs and targets (N, 1) have brought to [-1, 1].

    >>> task = Regression(0.0, 200.0)
    >>> right = task.scores(torch.tensor([[0.5], [7.0]]), torch.tensor([[0.25], [1.0]]))
    >>> right.tolist(), task.measured(right.mean().item())
    ([0.875, 1.0], 12.5)
    """

    low: float
    high: float
    loss = nn.MSELoss()
    measure = "mean_absolute_error"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().flatten(1).mean(1)

    def scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 1 - (outputs.double().clamp(-1, 1) - targets.double()).abs().flatten(1).mean(1) / 2

    def measured(self, right: float) -> float:
        return (1 - right) * (self.high - self.low)

    def constant(self, targets: Tensor) -> float:
        return self.measured(float(self.scores(targets.median().expand_as(targets), targets).mean()))

    def wrong_targets(self, targets: Tensor, draws: Tensor) -> Tensor:  # noqa: ARG002 - nothing is further away
        return torch.where(targets < 0, 1.0, -1.0)


class Scale(nn.Module):
    """From outputs (N, 1) to numbers (N,) between public bounds: the last part of a model that has learnt a number.

    >>> Scale(0.0, 200.0)(torch.tensor([[0.5], [7.0]]))
    tensor([150., 200.])
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, outputs: Tensor) -> Tensor:
        """What lies outside of the bounds is brought to them."""
        return self.low + (outputs.flatten(1).squeeze(1).clamp(-1, 1) + 1) * ((self.high - self.low) / 2)


def task_of(recipe: Recipe, classes: int) -> Task:
    """What the model of `recipe` is trained for.

    >>> task_of(Recipe.load("digits"), 10)
    Classification(classes=10)
    """
    return Classification(classes) if recipe.target_bounds is None else Regression(*recipe.target_bounds)
