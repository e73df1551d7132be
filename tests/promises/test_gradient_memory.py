"""How many gradients are held at a time, whatever the batch is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisette import Encoder
from noisette._gradients import PerExampleGradients, flat_params
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import GradForm
from noisette._gradients.layer_strategy import Layers
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import Tails
from tests.support.gradient_models import Then
from tests.support.rule_cases import bent


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many examples rows were asked for."""
    found: list[int] = []
    honest = Layout.rows

    def rows(self: Layout, count: int) -> Tensor:
        found.append(count)
        return honest(self, count)

    monkeypatch.setattr(Layout, "rows", rows)
    return found


@pytest.mark.parametrize("kind", ["L2", "Ranked", "rows"])
def test_of_large_models_one_gradient_is_held(kind: str, asked: list[int]) -> None:
    """More than 10 million parameters, on a sequence."""
    model = Then(nn.Linear(3, 2_600_000), 1, after=lambda h: h.mean(dim=(1, 2), keepdim=True))
    gradients, batch = PerExampleGradients(model, bent), (torch.randn(5, 2, 3), torch.zeros(5))
    assert gradients.dim > 10_000_000
    gradients.check(batch)  # of which a few sizes are tried
    assert max(asked) <= 4
    asked.clear()
    if kind == "rows":
        assert [len(rows) for rows in gradients.chunks(batch)] == [1] * 5
    else:
        encoder: Encoder = (
            L2(dim=gradients.dim) if kind == "L2" else Ranked(dim=gradients.dim, profiles=Tails(levels=8))
        )
        assert gradients._fused_sum(encoder, batch) is not None
    assert set(asked) == {1}


def test_of_large_copies_one_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of more than 10 million numbers that is used outside of its layer: rows of copies come all at once."""

    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(2_600_000, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.table(x).sum(dim=1) + self.table.weight[:3].sum(dim=0)

    gradients, x = PerExampleGradients(Outside(), bent), torch.randint(1000, (5, 4))
    assert gradients.dim > 10_000_000
    gradients.check((x[:1], torch.zeros(1)))
    seen: list[int] = []
    honest = Layers.terms
    monkeypatch.setattr(
        Layers, "terms", lambda way, batch, *rest: seen.append(len(batch[0])) or honest(way, batch, *rest)
    )
    assert gradients._fused_sum(L2(dim=gradients.dim), (x, torch.zeros(5))) is not None
    assert seen == [1] * 5


def test_no_row_is_held_where_none_is_computed(asked: list[int]) -> None:
    """Vectors through Linear layers: their norms and sums come from factors, whatever the number of examples."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(50, 6)
    gradients = PerExampleGradients(model, bent)
    gradients.check((x, torch.zeros(50)))
    gradients._fused_sum(L2(dim=gradients.dim), (x, torch.zeros(50)))  # which tries the sizes that it needs
    asked.clear()
    for encoder in (L2(dim=gradients.dim), Ranked(dim=gradients.dim)):
        assert gradients._fused_sum(encoder, (x, torch.zeros(50))) is not None
    assert set(asked) == {0}


def test_what_the_last_step_of_a_large_model_has_left_is_given_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory in pieces is of no use to the next step, and would count with it."""
    told: list[str] = []
    honest = Layers.terms

    def terms(way: Layers, *given: Any) -> list[GradForm]:
        told.append("pass")
        return honest(way, *given)

    monkeypatch.setattr(flat_params, "_LARGE", 4)
    monkeypatch.setattr(flat_params, "_trim", lambda: lambda _: told.append("given back"))
    monkeypatch.setattr(Layers, "terms", terms)
    gradients, batch = (
        PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss()),
        (torch.randn(5, 3), torch.zeros(5).long()),
    )
    gradients.check(batch)
    told.clear()
    gradients.encoded_sum(L2(dim=8), batch)
    assert told == ["given back", "pass", "given back", "given back"]
