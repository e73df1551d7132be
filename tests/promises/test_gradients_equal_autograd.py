"""Gradients of every kind of layer equal a loop of single backward passes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisette._gradients import PerExampleGradients, SlowPath
from noisette.errors import InvalidInput
from tests.support.gradient_models import CASES, SLOW, Recurrent, all_rows, paper_cnn, reference
from tests.support.helpers import refused


@pytest.mark.filterwarnings("ignore::noisette._gradients.Inexact")  # of chunks that fill no vector
@pytest.mark.parametrize("chunk", [3, 64])
@pytest.mark.parametrize("name", CASES)
def test_every_layer(name: str, chunk: int) -> None:
    case = CASES[name]
    model, x, y = case.build()
    gradients = PerExampleGradients(model, case.loss, chunk=chunk)
    rows = all_rows(gradients, x, y)
    torch.testing.assert_close(rows, reference(model, case.loss, x, y), rtol=1e-10, atol=1e-12)
    assert gradients.path == case.path
    assert rows.abs().max() > 1e-3


@pytest.mark.parametrize(("name", "culprit"), [("projected", "LSTM 'rnn'"), ("branching", "Branching")])
def test_what_vmap_cannot_run_is_looped_over_and_said_once(name: str, culprit: str) -> None:
    case = SLOW[name]
    model, x, y = case.build()
    gradients = PerExampleGradients(model, case.loss, chunk=3)
    with pytest.warns(SlowPath, match=culprit) as caught:
        gradients.check((x, y))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    rows = all_rows(gradients, x, y)
    torch.testing.assert_close(rows, reference(model, case.loss, x, y), rtol=1e-10, atol=1e-12)
    assert torch.equal(all_rows(gradients, x, y), rows)  # a second warning would be an error
    assert gradients.path == "loop"


def test_single_precision_lstm() -> None:
    torch.manual_seed(0)
    model, x, y = Recurrent(nn.LSTM(3, 4, batch_first=True)), torch.randn(4, 5, 3), torch.tensor([0, 1, 2, 0])
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    rows = all_rows(gradients, x, y)
    assert gradients.path == "layers"
    torch.testing.assert_close(rows, reference(model, nn.CrossEntropyLoss(), x, y))


def test_single_precision() -> None:
    torch.manual_seed(0)
    model, x, y = paper_cnn(), torch.randn(70, 1, 28, 28), torch.randint(10, (70,))
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    rows = all_rows(gradients, x, y)
    assert rows.dtype == torch.float32
    assert gradients.path == "layers"
    torch.testing.assert_close(rows, reference(model, nn.CrossEntropyLoss(), x, y), rtol=1e-4, atol=1e-6)


def test_other_losses_and_targets() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3).double(), torch.randn(5, 4).double(), torch.randn(5, 3).double()
    for loss in (nn.MSELoss(reduction="sum"), nn.MSELoss(), nn.L1Loss(reduction="none"), nn.SmoothL1Loss()):
        torch.testing.assert_close(all_rows(PerExampleGradients(model, loss), x, y), reference(model, loss, x, y))


def test_a_loss_that_mixes_examples_is_refused_and_would_see_one_at_a_time() -> None:
    def centred(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs - 0.5 * outputs.mean(0) - targets).pow(2).sum()

    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3).double(), torch.randn(5, 4).double(), torch.randn(5, 3).double()
    gradients = PerExampleGradients(model, centred)
    with refused(InvalidInput, match="not the mean or the sum"):
        gradients.check((x, y))
    for way in (*gradients._fast, *gradients._general):
        rows = torch.empty(5, gradients.dim, dtype=torch.float64)
        way.rows((x, y), rows)
        torch.testing.assert_close(rows, reference(model, centred, x, y))


def test_a_loss_with_control_flow_is_looped_over() -> None:
    def harsh(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gap = (outputs - targets).pow(2).sum()
        return gap if gap > 1 else gap.sqrt()

    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3).double(), torch.randn(9, 4).double(), torch.randn(9, 3).double()
    with pytest.warns(SlowPath, match="Linear"):
        rows = all_rows(PerExampleGradients(model, harsh), x, y)
    torch.testing.assert_close(rows, reference(model, harsh, x, y))


def test_parameters_in_order_and_each_once() -> None:
    model, _, _ = CASES["tied"].build()
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    assert [id(p) for p in gradients.parameters] == [id(p) for p in model.parameters()]
    assert gradients.dim == 35
    model, _, _ = CASES["frozen weight"].build()
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    assert [id(p) for p in gradients.parameters] == [id(p) for p in model.parameters() if p.requires_grad]
    assert gradients.dim == 5 + 20 + 12


def test_paper_network_has_its_26010_parameters() -> None:
    assert PerExampleGradients(paper_cnn(), nn.CrossEntropyLoss()).dim == 26_010
