"""The fast way sees for itself where it does not fit, before anybody compares numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients
from noisette._gradients.flat_params import Layout
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import adapt_loss
from noisette._gradients.state_guard import ModelTracer, StrategyNotApplicable
from noisette.errors import InvalidInput
from tests.support.gradient_models import CASES, all_rows, reference
from tests.support.helpers import refused

LOSS = nn.CrossEntropyLoss()


def candidates(model: nn.Module, loss: nn.Module = LOSS) -> tuple[Layers, ...]:
    return Layers.candidates(adapt_loss(model, loss), Layout(model), ModelTracer(model, loss))


def fast_rows(model: nn.Module, x: Tensor, y: Tensor, loss: nn.Module = LOSS) -> Tensor:
    rows = torch.empty(len(x), Layout(model).dim, dtype=torch.float64)
    candidates(model, loss)[0].rows((x, y), rows)
    return rows


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("one layer twice", 0),
        ("tied", 0),
        ("linear on sequences", 0),
        ("all positions at once", 0),
        ("attention", 0),
        ("borrowed weight", 2),
        ("bypassed layer", 2),
        ("transposed conv2d", 2),
        ("batch norm in eval mode", 2),
    ],
)
def test_parameters_without_a_rule_are_copied_and_others_are_not(name: str, copied: int) -> None:
    """A weight that is used outside of its layer takes the layer's bias along, since the layer then has no rule."""
    model, x, y = CASES[name].build()
    (way,) = candidates(model)
    rows = torch.empty(len(x), Layout(model).dim, dtype=torch.float64)
    way.rows((x, y), rows)
    torch.testing.assert_close(rows, reference(model, LOSS, x, y), rtol=1e-10, atol=1e-12)
    assert len(way._copied) == copied


def test_a_model_without_any_rule_is_not_even_tried() -> None:
    assert candidates(nn.ConvTranspose2d(1, 1, 2)) == ()


def test_two_layers_with_one_weight() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()
    model[2].weight = model[0].weight
    x, y = torch.randn(4, 6).double(), torch.randint(6, (4,))
    torch.testing.assert_close(fast_rows(model, x, y), reference(model, LOSS, x, y), rtol=1e-10, atol=1e-12)


def test_a_model_that_changes_is_refused() -> None:
    """A weight is used behind its layer's back from now on, which the way that was chosen cannot see."""
    model, x, y = CASES["borrowed weight"].build()
    once = nn.Sequential(model.inner, nn.Tanh(), model.head)
    gradients = PerExampleGradients(once, LOSS)
    all_rows(gradients, x, y)
    once.forward = model.forward
    with refused(InvalidInput, match="otherwise than when it was checked"):
        all_rows(gradients, x, y)


@pytest.mark.parametrize("fails", [False, True])
def test_a_layer_has_its_own_forward_back(fails: bool) -> None:
    model, x, y = CASES["attention"].build()
    if fails:
        model.head.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fast_rows(model, x, y)
    else:
        fast_rows(model, x, y)
    assert not any("forward" in vars(module) for module in model.modules())


class Overwritten(nn.Module):
    """Changes a layer's input after the layer has run, which autograd does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x)
        y = self.head(h)
        h.zero_()
        return y


def test_an_input_that_is_overwritten_is_an_error_as_in_torch() -> None:
    x, y = torch.randn(4, 6).double(), torch.randint(3, (4,))
    with pytest.raises(StrategyNotApplicable, match="changed in place"):
        fast_rows(Overwritten().double(), x, y)
    with refused(InvalidInput, match=r"modified by an inplace operation(.|\n)*nothing in place"):
        all_rows(PerExampleGradients(Overwritten().double(), LOSS), x, y)


def test_a_loss_that_depends_on_nothing() -> None:
    class Constant(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(len(x), 3).double()

    model = nn.Sequential(nn.Linear(6, 3), Constant(1, 1).requires_grad_(False)).double()
    with pytest.raises(StrategyNotApplicable, match="no parameter"):
        fast_rows(model, torch.randn(4, 6).double(), torch.zeros(4, dtype=torch.long))


def test_outputs_without_rows() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)).double()
    with pytest.raises(StrategyNotApplicable, match="one row of numbers"):
        fast_rows(model, torch.randn(4, 6).double(), torch.zeros(4).long())


def test_hooks_of_the_user_run_after_ours_and_count() -> None:
    model, x, y = CASES["mlp"].build()
    model[0].register_forward_hook(lambda module, args, output: output * 3)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    rows = fast_rows(model, x, y)
    torch.testing.assert_close(rows, reference(model, LOSS, x, y), rtol=1e-10, atol=1e-12)
    assert len(model[0]._forward_hooks) == 1


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.3),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 5.0, 1.0], dtype=torch.float64), reduction="sum"),
        nn.CrossEntropyLoss(ignore_index=1, reduction="sum"),
        nn.NLLLoss(),
    ],
    ids=repr,
)
def test_losses_of_all_kinds_are_those_of_single_examples(loss: nn.Module) -> None:
    model, x, y = CASES["mlp"].build()
    torch.testing.assert_close(fast_rows(model, x, y, loss), reference(model, loss, x, y), rtol=1e-10, atol=1e-12)


def test_one_colour_is_laid_out_channels_last_too() -> None:
    """One channel lies alike in both layouts; a convolution that is not told by strides computes in the slow one."""
    seen: list[tuple[int, ...]] = []
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    model[0].register_forward_hook(lambda module, args, output: seen.append(module.weight.stride()))
    candidates(model)[0].rows((torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 0])), torch.empty(3, Layout(model).dim))
    assert seen == [(9, 1, 3, 1)]
