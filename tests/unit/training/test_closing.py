"""An objective or a model that closes over all of the data is refused: a bound for one example would mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from noisette import Mechanism, check, make_private
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.objectives import per_example
from noisette.training.closing import refuse_closed_over
from tests.support.helpers import refused

COUNT = 40
X, Y = torch.rand(COUNT, 4), torch.arange(COUNT) % 2
EVERYBODY = X.clone()
x = X.clone()  # which nothing reads
MECHANISM = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=1)


def _near(h: Tensor, everybody: Any) -> Tensor:
    return h + torch.as_tensor(np.asarray(everybody)).mean()


def closing(everybody: Any) -> Callable[..., Tensor]:
    return lambda model, batch: _near(model(batch[0]).square().sum(1), everybody)


def reading(model: nn.Module, batch: Any) -> Tensor:
    return _near(model(batch[0]).square().sum(1), EVERYBODY)


def reading_by_another(model: nn.Module, batch: Any) -> Tensor:
    return reading(model, batch)


def given(model: nn.Module, batch: Any, everybody: Any = None) -> Tensor:
    return _near(model(batch[0]).square().sum(1), everybody)


class Called:
    def __init__(self, everybody: Any) -> None:
        self.everybody = everybody

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        return given(model, batch, self.everybody)


class Net(nn.Linear):
    """On one graph of all examples, say; `how` it has it."""

    def __init__(self, table: Tensor, how: str) -> None:
        super().__init__(4, 2)
        if how == "buffer":
            self.register_buffer("table", table)
        elif how == "parameter":
            self.table = nn.Parameter(table, requires_grad=False)
        else:
            self.tables = {"one": [table]}

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Reading(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + EVERYBODY.mean()


LOSS = nn.CrossEntropyLoss()
CASES: dict[str, tuple[nn.Module, Any, str]] = {
    "a closure": (nn.Linear(4, 2), closing(EVERYBODY), "what the objective closes over"),
    "an array": (nn.Linear(4, 2), per_example(closing(EVERYBODY.numpy())), "what the objective closes over"),
    "a global variable": (nn.Linear(4, 2), reading, "the global variable 'EVERYBODY'"),
    "a global variable of another function": (nn.Linear(4, 2), reading_by_another, "the global variable 'EVERYBODY'"),
    "a partial": (nn.Linear(4, 2), partial(given, everybody=[EVERYBODY]), "what the objective closes over"),
    "an object": (nn.Linear(4, 2), Called({"x": EVERYBODY}).__call__, "'everybody' of Called"),
    "a buffer": (Net(EVERYBODY, "buffer"), LOSS, "'table' of Net"),
    "an attribute": (nn.Sequential(Net(EVERYBODY, "attribute")), LOSS, "'tables' of Net '0'"),
    "a global variable of the model": (Reading(4, 2), LOSS, "the global variable 'EVERYBODY'"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_closes_over_the_data_is_refused(name: str) -> None:
    model, goal, place = CASES[name]
    with refused(InvalidInput, match=f"{place} has 40 rows.*\n\n.*belongs into the data"):
        make_private(model, goal, (X, Y), MECHANISM)
    assert place in str(check(model, (X, Y), goal=goal))


PASSING: dict[str, tuple[nn.Module, Any]] = {
    "other rows": (Net(EVERYBODY[:-1], "buffer"), LOSS),
    "a frozen parameter": (Net(EVERYBODY, "parameter"), LOSS),
    "as wide as the data is long": (nn.Sequential(nn.Linear(4, COUNT), nn.BatchNorm1d(COUNT).eval()), LOSS),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_is_no_data_passes(name: str) -> None:
    model, goal = PASSING[name]
    make_private(model, goal, (X, Y), MECHANISM)


def test_an_attribute_is_no_global_variable() -> None:
    def objective(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch["part"].x if "part" in batch else batch["x"]), batch["y"], reduction="none")

    make_private(nn.Linear(4, 2), objective, {"x": X, "y": Y}, MECHANISM)


def test_a_small_data_set_may_have_as_many_rows_as_anything() -> None:
    make_private(Net(EVERYBODY[:8], "buffer"), LOSS, (X[:8], Y[:8]), MECHANISM)


@pytest.mark.parametrize("kind", ["data set", "list"])
def test_a_data_set_or_a_list_of_all_examples_is_refused(kind: str) -> None:
    rows = torch.randn(40, 3)
    everyone: Any = TensorDataset(rows) if kind == "data set" else list(rows)

    def centred(model: nn.Module, batch: Any) -> torch.Tensor:
        return (model(batch) - model(torch.stack([row[0] if kind == "data set" else row for row in everyone]))).sum(1)

    with refused(InvalidInput, match="has 40 rows, as many as there are examples"):
        refuse_closed_over(nn.Linear(3, 2), centred, 40)
    refuse_closed_over(nn.Linear(3, 2), centred, 41)
