"""A loss for one example is its share in a batch, class weights included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients
from noisette.errors import InvalidInput
from tests.support.gradient_models import all_rows, reference
from tests.support.helpers import refused

WEIGHT = torch.tensor([1.0, 5.0, 0.25], dtype=torch.float64)


def batch(shape: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 6, generator=generator).double(), torch.randint(3, (12, *shape), generator=generator)


@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.NLLLoss])
@pytest.mark.parametrize("head", [nn.Identity(), nn.LayerNorm(3)], ids=["last", "inner"])
def test_weights_count(kind: type[nn.Module], head: nn.Module) -> None:
    """The gradients with weights are those without, times the weight of the target's class."""
    torch.manual_seed(0)
    last = nn.LogSoftmax(1) if kind is nn.NLLLoss else nn.Identity()
    model, (x, y) = nn.Sequential(nn.Linear(6, 3), head, last).double(), batch()
    plain, weighted = (all_rows(PerExampleGradients(model, loss), x, y) for loss in (kind(), kind(weight=WEIGHT)))
    torch.testing.assert_close(weighted, plain * WEIGHT[y][:, None])


class Focal(nn.CrossEntropyLoss):
    """Weights of classes, and a loss of its own."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(outputs, targets, weight=self.weight, reduction="none")
        return ((1 - torch.exp(-each)) ** 2 * each).mean()


class Renamed(nn.CrossEntropyLoss):
    pass


def test_a_subclass_keeps_its_own_loss() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(6, 3).double(), batch()
    focal = Focal(weight=WEIGHT)
    torch.testing.assert_close(all_rows(PerExampleGradients(model, focal), x, y), reference(model, focal, x, y))
    renamed, plain = (
        all_rows(PerExampleGradients(model, kind(weight=WEIGHT)), x, y) for kind in (Renamed, nn.CrossEntropyLoss)
    )
    assert torch.equal(renamed, plain)


def test_a_hooked_loss_keeps_its_hooks() -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(6, 3).double(), batch()
    loss = nn.CrossEntropyLoss(weight=WEIGHT)
    loss.register_forward_hook(lambda module, args, found: 2 * found)
    with refused(InvalidInput, match="is not the mean or the sum"):  # torch's own mean, by weights
        all_rows(PerExampleGradients(model, loss), x, y)


@pytest.mark.parametrize("heavy", [0, 1, 2, 9, 99])
def test_weights_in_a_function_are_seen_whichever_class_has_them(heavy: int) -> None:
    """Every class is tried where there are up to 64, and some of more."""
    weight = torch.ones(max(10, heavy + 1)).double()
    weight[heavy] = 50.0
    model = nn.Linear(6, len(weight)).double()
    with refused(InvalidInput, match="is not the mean or the sum"):
        PerExampleGradients(model, lambda a, b: F.cross_entropy(a, b, weight=weight)).check(batch())


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [nn.MSELoss(), F.mse_loss, nn.L1Loss(reduction="sum")])
def test_shapes_that_fit_by_chance_for_one_example_are_refused(loss: Any) -> None:
    """Outputs (1, 3, 1) and targets (1, 3) are compared each with all, which four examples show at once."""
    model = nn.Sequential(nn.Linear(6, 3), nn.Unflatten(1, (3, 1)))
    data = torch.randn(12, 6), torch.randn(12, 3)
    with refused(InvalidInput, match=r"is not the mean or the sum") as caught:
        PerExampleGradients(model, loss).check(data)
    assert "targets.view_as(outputs)" in caught.value.hint


def test_a_loss_that_is_written_for_one_example_passes() -> None:
    def alone(outputs: Tensor, targets: Tensor) -> Tensor:
        assert len(outputs) == 1
        return (outputs - targets).square().sum()

    torch.manual_seed(0)
    model, x, y = nn.Linear(6, 3), torch.randn(12, 6), torch.randn(12, 3)
    torch.testing.assert_close(all_rows(PerExampleGradients(model, alone), x, y), reference(model, alone, x, y))


def test_a_batch_of_them_points_where_torchs_own_does() -> None:
    """Torch divides by the weights of the batch, a number for all of its examples: the direction is the same."""
    torch.manual_seed(0)
    model, loss, (x, y) = nn.Linear(6, 3).double(), nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.0), batch()
    ours = all_rows(PerExampleGradients(model, loss), x, y).sum(0)
    theirs = torch.cat([g.flatten() for g in torch.autograd.grad(loss(model(x), y), list(model.parameters()))])
    torch.testing.assert_close(ours / WEIGHT[y].sum(), theirs)


def test_targets_for_every_position() -> None:
    """The mean is over an example's own positions that are not ignored."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Unflatten(1, (3, 4))).double()
    loss, (x, y) = nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=2), batch((4,))
    rows = all_rows(PerExampleGradients(model, loss), x, y)
    none = nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=2, reduction="none")
    for i in range(12):
        alone = none(model(x[i : i + 1]), y[i : i + 1]).sum() / max(1, int((y[i] != 2).sum()))
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(alone, list(model.parameters()))])
        torch.testing.assert_close(rows[i], expected)
