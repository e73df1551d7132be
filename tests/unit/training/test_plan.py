"""Nobody counts parameters: the plan has the model's dimension, the data's rate and the budget's scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from noisette import Mechanism, guarantee, make_private, plan
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.errors import InvalidInput, Unaccountable
from noisette.noise import Gaussian, StudentT
from tests.support.helpers import refused

BUDGET = {"epsilon": 3.0, "delta": 1e-5}


def data(count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 4, generator=generator), torch.randint(2, (count,), generator=generator)


def test_it_is_what_one_would_have_calibrated_by_hand() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    found = plan(model, data(), batch=50, epochs=3, **BUDGET)
    assert (found.encoder, found.rate, found.steps) == (L2(dim=23), 0.1, 30)
    assert 2.99 <= guarantee(found, 1e-5, examples=500).epsilon <= 3.0
    model[0].requires_grad_(False)
    assert plan(model, data(), batch=50, steps=7, **BUDGET).encoder.dim == 8


def test_open_parts_are_filled_and_closed_ones_kept() -> None:
    model = nn.Linear(4, 2)
    found = plan(model, data(), batch=50, steps=5, encoder=Ranked(radius=0.5), noise=StudentT(df=9), **BUDGET)
    assert found.encoder == Ranked(dim=10, profiles=HalfNormal(), radius=0.5)
    assert isinstance(found.noise, StudentT)
    with refused(InvalidInput, match="dimension 5, the model has 10"):
        plan(model, data(), batch=50, steps=5, encoder=L2(dim=5), **BUDGET)
    with refused(Unaccountable, match="over an L2 ball"):
        plan(model, data(), batch=50, steps=5, noise=StudentT(df=9), **BUDGET)


@pytest.mark.parametrize(
    "examples",
    [data(), {"x": data()[0], "y": (data()[1],)}, data()[0], data()[0].numpy(), [[0.0]] * 500, range(500)],
    ids=["tuple", "dict", "tensor", "array", "list", "anything with a length"],
)
def test_the_rate_comes_from_the_length(examples: object) -> None:
    assert plan(nn.Linear(4, 2), examples, batch=100, steps=1, **BUDGET).rate == 0.2


def test_refused() -> None:
    model, (x, y) = nn.Linear(4, 2), data()
    with refused(InvalidInput, match="a batch of 501 is more than the 500 examples"):
        plan(model, (x, y), batch=501, steps=1, **BUDGET)
    for lengths in ({}, {"steps": 1, "epochs": 1}):
        with refused(InvalidInput, match="either steps or epochs"):
            plan(model, (x, y), batch=5, **lengths, **BUDGET)
    with refused(InvalidInput, match="500 rows and .* 499, which do not fit"):
        plan(model, (x, y[:-1]), batch=5, steps=1, **BUDGET)
    with refused(InvalidInput, match="is empty"):
        plan(model, (x[:0], y[:0]), batch=5, steps=1, **BUDGET)
    with refused(InvalidInput, match="at least 1/500"):
        plan(model, (x, y), batch=5, steps=1, epsilon=3.0, delta=1 / 500)


def test_make_private_fills_an_open_dimension() -> None:
    x, y = data()
    open_plan = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=2)
    private = make_private(nn.Linear(4, 2), nn.CrossEntropyLoss(), (x, y), open_plan)
    assert private.mechanisms[0].encoder.dim == 10
    with pytest.raises(InvalidInput, match="dimension"):
        guarantee(Mechanism(Ranked(), Gaussian(scale=1.0), rate=0.1, steps=2), 1e-5)


def test_numpy_and_lists_are_examples_too() -> None:
    x, y = data()
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=1)
    loss = nn.CrossEntropyLoss()
    for inputs, targets in ((np.asarray(x, dtype=np.float64), y.numpy()), (x.tolist(), y.tolist())):
        make_private(nn.Linear(4, 2), loss, (inputs, targets), mechanism).step()
