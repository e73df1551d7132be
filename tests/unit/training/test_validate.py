"""What `check` tells is what `make_private` does: nothing that it passes is refused, and nothing is slow unsaid."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette import Mechanism, check, make_private
from noisette._gradients import SlowPath
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian

DATA = (torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))


class Changed(nn.Module):
    """A Linear layer between two functions of the examples."""

    def __init__(self, before: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.before = nn.Linear(4, 2), before

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.before(x))


class Bare(nn.Module):
    """A large parameter of its own, which no rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Parameter(torch.ones(4, 30_000)), nn.Linear(30_000, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x @ self.table)


def read_out(x: Tensor) -> Tensor:
    return x if x.sum().item() < 1e9 else -x


def hooked() -> nn.Module:
    layer = nn.Linear(4, 2)
    layer.weight.register_hook(lambda gradient: gradient * 0)
    return layer


class Elsewhere(Dataset[Any]):
    """Examples on the meta device: of all that is not where the model is, what can be had on any machine."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, number: int) -> Any:
        return torch.zeros(4, device="meta"), torch.zeros((), dtype=torch.long, device="meta")


@pytest.mark.parametrize(
    "data",
    [tuple(part.to("meta") for part in DATA), (DATA[0].to("meta"), DATA[1]), Elsewhere()],
    ids=["tensors", "one of two tensors", "a Dataset"],
)
@pytest.mark.parametrize("goal", [None, nn.CrossEntropyLoss()])
def test_the_check_is_where_the_model_is_wherever_the_data_lies(data: Any, goal: Any) -> None:
    model = nn.Linear(4, 2)
    assert check(model, data, goal=goal).path == "layers"
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=2)
    private = make_private(model, nn.CrossEntropyLoss(), data, mechanism)
    model.eval()
    private._gradients.recheck()  # on what it keeps of the data
    assert private.steps_remaining == 2


CASES: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "a layer": (lambda: nn.Linear(4, 2), "", "layers"),
    "dropout and a norm": (lambda: nn.Sequential(nn.LayerNorm(4), nn.Dropout(0.5), nn.Linear(4, 2)), "", "layers"),
    "in place, where it does no harm": (lambda: nn.Sequential(nn.Linear(4, 2), nn.ReLU(inplace=True)), "", "layers"),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), "refused BatchNorm1d '1'", ""),
    "centred by the batch": (lambda: Changed(lambda x: x - x.mean(0)), "refused Changed", ""),
    "a number read out": (lambda: Changed(read_out), "slow Changed", "loop"),
    "a large parameter": (Bare, "slow Bare", "layers"),
    "a hook on a weight": (hooked, "refused Parameter 'weight'", ""),
    "nothing to train": (lambda: nn.Linear(4, 2).requires_grad_(False), "refused Linear", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_told_is_what_happens(name: str) -> None:
    make, told, path = CASES[name]
    torch.manual_seed(0)
    report = check(make(), DATA)
    assert [f"{one.verdict} {one.layer}" for one in report.findings] == ([told] if told else [])
    assert report.passed == (not told.startswith("refused"))
    assert (report.path or "") == path
    assert all(one.reason and one.fix for one in report.findings)
    model = make()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if report.passed:
            _step(model)
        else:
            with pytest.raises(InvalidInput):
                _step(model)
    assert any(issubclass(one.category, SlowPath) for one in said) == (path == "loop")


def _step(model: nn.Module) -> None:
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=1.0, steps=1)
    make_private(model, nn.CrossEntropyLoss(), DATA, mechanism).step()


def test_a_model_that_was_just_loaded_is_judged_as_in_training() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    assert not check(model, DATA).passed
    assert not any(layer.training for layer in model.modules())
    model.train()
    model[1].eval()  # on purpose
    assert check(model, DATA).passed


@pytest.mark.parametrize("data", [{"x": torch.zeros(3, 4), "labels": torch.zeros(3)}, torch.zeros(3, 4)])
def test_data_of_other_forms(data: Any) -> None:
    class Named(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    assert check(Named(4, 2), data).passed


def test_a_goal_of_ones_own() -> None:
    report = check(nn.Linear(4, 2), torch.zeros(9, 4), goal=lambda model, batch: model(batch).mean())
    assert "not one loss for each example" in str(report)
    assert not report.passed


def test_examples_that_do_not_fit_are_told() -> None:
    assert "cannot be run" in str(check(nn.Linear(4, 2), (torch.zeros(9, 5), DATA[1])))
