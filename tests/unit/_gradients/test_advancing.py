"""Buffers that a forward pass changes are refused by name, and the way out that is named works."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from noisette import Mechanism, check, make_private
from noisette._gradients import PerExampleGradients
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.objectives import per_example
from tests.support.helpers import refused

LOSS = nn.CrossEntropyLoss()
X, Y = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 3


class Running(nn.Module):
    """A mean of what it has seen, in training as it is written; `change` does it."""

    def __init__(self, change: Callable[[nn.Module, Tensor], None]) -> None:
        super().__init__()
        self.change, self.head = change, nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("table", torch.arange(6.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.change(self, x)
        return self.head(x + self.table)


def in_place(module: nn.Module, x: Tensor) -> None:
    module.mean.lerp_(x.detach().mean(0), 0.1)


def anew(module: nn.Module, x: Tensor) -> None:
    module.mean = 0.9 * module.mean + 0.1 * x.detach().mean(0)


def a_copy(module: nn.Module, x: Tensor) -> None:
    module.table = torch.arange(6.0)


@pytest.mark.parametrize("change", [in_place, anew])
def test_a_buffer_that_a_forward_pass_changes_is_refused_by_name(change: Callable[[nn.Module, Tensor], None]) -> None:
    model = nn.Sequential(Running(change), nn.Linear(3, 3))
    with refused(InvalidInput, match=r"the buffer 'mean' of Running at '0' changes.*\n\n.*get_submodule\('0'\)"):
        PerExampleGradients(model, LOSS).check((X, Y))
    assert not model[0].mean.any()
    objective = per_example(lambda model, batch: LOSS(model(batch[0]), batch[1]))
    assert "the buffer 'mean'" in str(check(model, (X, Y), goal=objective))
    model[0].eval()
    PerExampleGradients(model, LOSS).check((X, Y))


def test_a_table_that_is_made_again_passes() -> None:
    PerExampleGradients(Running(a_copy), LOSS).check((X, Y))


def test_the_spectral_norm_is_refused_also_where_it_rests() -> None:
    """After many passes its state is that of the weights as they are, which the next step moves."""
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))
    for _ in range(500):
        model(X[:1])
    with refused(InvalidInput, match=r"the buffer '_[uv]' of _SpectralNorm at '0\.parametrizations\.weight\.0'"):
        PerExampleGradients(model, LOSS).check((X, Y))


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.spectral_norm:FutureWarning")
def test_the_spectral_norm_of_old_is_refused_in_favour_of_the_new_one() -> None:
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 3)))
    for mode in (model, model.eval()):
        with refused(InvalidInput, match=r"Linear at '0' has the spectral norm.*\n\n.*parametrizations\.spectral_norm"):
            PerExampleGradients(mode, LOSS).check((X, Y))


def test_the_way_out_keeps_the_spectral_norm_at_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 3))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=60)
    with refused(InvalidInput) as caught:
        make_private(model, LOSS, (X, Y), mechanism)
    named = re.search(r"let (model\.get_submodule\('.*?'\))", caught.value.hint)
    layer = eval(named[1], {"model": model})  # as the hint says
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    layer.eval()
    for _ in make_private(model, LOSS, (X, Y), mechanism, seed=3):
        optimizer.step()
        layer.train()
        with torch.no_grad():
            model(torch.zeros(1, 6))
        layer.eval()
    assert _largest(model[0].weight) == pytest.approx(1, abs=0.1)
    assert _largest(model[0].parametrizations.weight.original) > 2


def _largest(weight: Tensor) -> float:
    return float(torch.linalg.svdvals(weight.detach())[0])
