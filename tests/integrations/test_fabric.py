"""A module under two names, as in the wrapper of Fabric: gradients add up, and the model stays whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette._gradients import PerExampleGradients
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.strategies import Loop, Vmap
from noisette.encoders import L2
from noisette.noise import Gaussian


class Twice(nn.Module):
    """One hidden layer under two names, whose weight is also that of another layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.again = self.first
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.last = nn.Linear(3, 2)
        self.register_buffer("factor", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.tied(torch.tanh(self.again(torch.tanh(self.first(x)))) * self.factor))


@pytest.mark.parametrize("way", [Layers, Vmap, Loop])
def test_gradients_add_up_and_the_model_keeps_its_parameters(way: type) -> None:
    model, x, y = Twice().double(), torch.randn(5, 3).double(), torch.tensor([0, 1, 0, 1, 1])
    held = dict(model.named_parameters(remove_duplicate=False))
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    ways = {Layers: gradients._fast[:1], Vmap: gradients._general[:1], Loop: gradients._general[1:]}
    rows = torch.empty(5, gradients.dim).double()
    ways[way][0].rows((x, y), rows)
    for row, one, label in zip(rows, x, y, strict=True):
        loss = nn.functional.cross_entropy(model(one[None]), label[None])
        alone = torch.autograd.grad(loss, gradients.parameters)
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in alone]))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert all(after[name] is p for name, p in held.items())
    assert after.keys() == held.keys()
    assert isinstance(model.factor, Tensor)


def test_a_private_run_leaves_parameters() -> None:
    model, data = Twice(), (torch.randn(40, 3), torch.randint(2, (40,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in make_private(model, nn.CrossEntropyLoss(), data, Mechanism(L2(), Gaussian(scale=1.0), rate=0.2, steps=2)):
        optimizer.step()
    assert all(isinstance(layer.weight, nn.Parameter) for layer in (model.first, model.again, model.tied))
