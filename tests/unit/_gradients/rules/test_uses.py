"""Layers and parameters as models use them: twice, tied, bare, frozen, for nothing, in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients
from noisette._gradients.batched_layers import LayerCallRecorder
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import GradForm, Sum
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import adapt_loss
from noisette._gradients.state_guard import ModelTracer, StrategyNotApplicable
from noisette._gradients.strategies import Loop
from noisette.encoders import L2, Ranked
from tests.support.gradient_models import reference
from tests.support.rule_cases import bent, check, ways

X, TOKENS = (4, 5), 7


class Model(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, does: Callable[[Model, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.does = does
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.does(self, x)


def tied(bias: bool = True) -> tuple[nn.Embedding, nn.Linear]:
    table, out = nn.Embedding(TOKENS, 5), nn.Linear(5, TOKENS, bias=bias)
    out.weight = table.weight
    return table, out


def frozen(layer: nn.Module, *names: str) -> nn.Module:
    for name in names or [name for name, _ in layer.named_parameters()]:
        layer.get_parameter(name).requires_grad_(False)
    return layer


def quiet(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


def with_token(m: Model, x: Tensor) -> Tensor:
    """A class token in front, positions added, and each channel scaled: as vision transformers have it."""
    h = torch.cat([m.token.expand(len(x), -1, -1), m.inner(x)], dim=1) + m.positions
    return m.head(h + m.scale * torch.tanh(m.mix(h)))


def bare(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


# name: the model, its inputs (0 for numbers, otherwise tokens), and how many parameters are copied
MODELS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "a layer that runs twice": (
        lambda: Model(lambda m, x: m.inner(torch.tanh(m.inner(x))), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
    "a layer that runs three times, on vectors and on sequences": (
        lambda: Model(lambda m, x: m.inner(torch.tanh(m.inner(x)).mean(1)) + m.inner(x[:, 0]), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
    "a norm that runs twice": (
        lambda: Model(lambda m, x: m.norm(m.inner(m.norm(x))), norm=nn.LayerNorm(5), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
    "a convolution that runs twice": (
        lambda: Model(lambda m, x: m.conv(torch.tanh(m.conv(x))), conv=nn.Conv1d(4, 4, 3, padding=1)),
        0,
        0,
    ),
    "recurrence that runs twice": (
        lambda: Model(lambda m, x: m.rnn(m.rnn(x)[0].tanh())[0], rnn=nn.LSTM(5, 5, batch_first=True)),
        0,
        0,
    ),
    "attention that runs twice": (
        lambda: Model(
            lambda m, x: m.mha(m.mha(x, x, x)[0], x, x)[0], mha=nn.MultiheadAttention(5, 1, batch_first=True)
        ),
        0,
        0,
    ),
    "a table that is also the output layer": (
        lambda: Model(lambda m, x: m.out(torch.tanh(m.table(x))), **dict(zip(("table", "out"), tied(), strict=True))),
        TOKENS,
        0,
    ),
    "a table used as a matrix": (
        lambda: Model(lambda m, x: torch.tanh(m.table(x)) @ m.table.weight.T, table=nn.Embedding(TOKENS, 5)),
        TOKENS,
        1,
    ),
    "a weight used outside of its layer": (
        lambda: Model(lambda m, x: F.linear(m.inner(x).tanh(), m.inner.weight), inner=nn.Linear(5, 5)),
        0,
        2,
    ),
    "a weight used outside of one of two layers": (
        lambda: Model(
            lambda m, x: m.head(F.linear(m.inner(x).tanh(), m.inner.weight)),
            inner=nn.Linear(5, 5),
            head=nn.Linear(5, 3),
        ),
        0,
        2,
    ),
    "a penalty on a weight": (
        lambda: Model(lambda m, x: m.inner(x) + m.inner.weight.square().sum(), inner=nn.Linear(5, 5)),
        0,
        2,
    ),
    "bare parameters": (
        lambda: Model(
            with_token,
            token=bare(1, 1, 5),
            positions=bare(5, 5),
            scale=bare(5),
            inner=nn.Linear(5, 5),
            mix=nn.Linear(5, 5),
            head=nn.Linear(5, 2),
        ),
        0,
        3,
    ),
    "a frozen layer before": (
        lambda: Model(lambda m, x: m.head(m.inner(x).tanh()), inner=frozen(nn.Linear(5, 5)), head=nn.Linear(5, 2)),
        0,
        0,
    ),
    "a frozen layer behind": (
        lambda: Model(lambda m, x: m.head(m.inner(x).tanh()), inner=nn.Linear(5, 5), head=frozen(nn.Linear(5, 2))),
        0,
        0,
    ),
    "a frozen weight": (lambda: Model(lambda m, x: m.inner(x), inner=frozen(nn.Linear(5, 5), "weight")), 0, 0),
    "a frozen bias": (lambda: Model(lambda m, x: m.inner(x), inner=frozen(nn.Linear(5, 5), "bias")), 0, 0),
    "a frozen bare parameter": (
        lambda: Model(lambda m, x: m.inner(x) * m.scale, inner=nn.Linear(5, 5), scale=bare(5).requires_grad_(False)),
        0,
        0,
    ),
    "frozen parts of attention": (
        lambda: Model(
            lambda m, x: m.mha(x, x, x)[0],
            mha=frozen(nn.MultiheadAttention(5, 1, batch_first=True), "in_proj_weight", "out_proj.bias"),
        ),
        0,
        0,
    ),
    "frozen parts of recurrence": (
        lambda: Model(
            lambda m, x: m.rnn(x)[0], rnn=frozen(nn.GRU(5, 3, batch_first=True), "weight_hh_l0", "bias_ih_l0")
        ),
        0,
        0,
    ),
    "a table that is frozen where it is also the output": (
        lambda: Model(
            lambda m, x: m.out(torch.tanh(m.table(x))),
            **{name: frozen(part, "weight") for name, part in zip(("table", "out"), tied(), strict=True)},
        ),
        TOKENS,
        0,
    ),
    "what matters to nothing": (
        lambda: Model(
            lambda m, x: m.head(x) + 0 * m.idle(x).detach().sum(),
            idle=nn.Linear(5, 2),
            never=nn.LayerNorm(5),
            alone=bare(3),
            head=nn.Linear(5, 2),
        ),
        0,
        1,
    ),
    "a layer without gradients": (
        lambda: Model(lambda m, x: m.head(quiet(m.inner, x)), inner=nn.Linear(5, 5), head=nn.Linear(5, 2)),
        0,
        0,
    ),
    "a layer once with and once without gradients": (
        lambda: Model(lambda m, x: m.inner(x) + quiet(m.inner, x.tanh()), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
    "an output changed in place": (
        lambda: Model(lambda m, x: m.head(m.inner(x).tanh_()), inner=nn.Linear(5, 5), head=nn.Linear(5, 2)),
        0,
        0,
    ),
    "outputs changed in place twice": (
        lambda: Model(
            lambda m, x: m.head(m.inner(x).mul_(3).add_(m.skip(x))),
            inner=nn.Linear(5, 5),
            skip=nn.Linear(5, 5),
            head=nn.Linear(5, 2),
        ),
        0,
        0,
    ),
    "a part of an output changed in place": (
        lambda: Model(masked_in_place, inner=nn.Linear(5, 5), head=nn.Linear(5, 2)),
        0,
        0,
    ),
    "outputs of other layers changed in place": (
        lambda: Model(
            lambda m, x: m.norm(m.conv(x).mul_(2)).relu_(),
            conv=nn.Conv1d(4, 4, 3),
            norm=nn.GroupNorm(2, 4),
        ),
        0,
        0,
    ),
    "the input of a frozen layer changed in place afterwards": (
        lambda: Model(overwritten_after_frozen, frozen=nn.Linear(5, 5).requires_grad_(False), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
    "an input changed in place before": (
        lambda: Model(lambda m, x: m.inner((x * 2).tanh_()), inner=nn.Linear(5, 5)),
        0,
        0,
    ),
}


def overwritten_after_frozen(m: Model, x: Tensor) -> Tensor:
    h = x * 2
    out = m.frozen(h)
    h.zero_()
    return m.inner(out + h)


def masked_in_place(m: Model, x: Tensor) -> Tensor:
    h = m.inner(x)
    h[:, 1:] = h[:, 1:] * 2
    return m.head(h)


def build(name: str, dtype: torch.dtype = torch.float64, count: int = 4) -> tuple[nn.Module, Tensor]:
    make, tokens, _ = MODELS[name]
    torch.manual_seed(0)
    model = make().to(dtype)
    return model, torch.randint(tokens, (count, 4)) if tokens else torch.randn(count, *X, dtype=dtype)


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_autograd(name: str) -> None:
    model, x = build(name)
    expected, layout, found = reference(model, bent, x, torch.zeros(4)), Layout(model), list[Layers]()
    for way in ways(model):
        rows = torch.full_like(expected, torch.nan)
        way.rows((x, torch.zeros(4)), rows)
        torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-12)
        found.append(way)
    assert layout.dim == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert [len(way._copied) for way in found] == [MODELS[name][2]] * len(found)
    assert len(found) == 1


@pytest.mark.parametrize("name", MODELS)
def test_encoded_sums_are_those_of_rows(name: str) -> None:
    """Rows of one parameter from several terms are added before a norm is taken or a rank is found."""
    model, x = build(name, torch.float32, count=9)
    rows = torch.empty(9, Layout(model).dim)
    Loop(adapt_loss(model, bent), Layout(model), ModelTracer(model, bent)).rows((x, torch.zeros(9)), rows)
    radius = 0.5 * float(rows.norm(dim=1).median())
    for encoder in (L2(dim=rows.shape[1], radius=radius), Ranked(dim=rows.shape[1], radius=radius)):
        found = PerExampleGradients(model, bent)._fused_sum(encoder, (x, torch.zeros(9)))
        assert found is not None
        expected = encoder.encode_sum(rows).unsafe_values()
        assert float((found - expected).norm() / expected.norm()) < 1e-3


def test_every_use_of_a_tied_weight_is_a_term() -> None:
    model, x = build("a table that is also the output layer")
    (way,) = ways(model)
    table, bias = way.terms((x, torch.zeros(4)))
    assert isinstance(table, Sum)
    assert len(table._terms) == 2
    assert not isinstance(bias, Sum)


@pytest.mark.parametrize(
    "name",
    [
        *("a frozen layer before", "a frozen layer behind", "a frozen weight", "frozen parts of attention"),
        *("frozen parts of recurrence", "a table that is frozen where it is also the output"),
        "a layer once with and once without gradients",
    ],
)
def test_a_frozen_parameter_gets_no_term(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed for it, nor for a call under no_grad."""
    model, x = build(name)
    seen: list[dict[Tensor, list[GradForm]]] = []
    honest = LayerCallRecorder.terms

    def terms(self: LayerCallRecorder, ends: list[Tensor | None]) -> dict[Tensor, list[GradForm]]:
        seen.append(honest(self, ends))
        return seen[-1]

    monkeypatch.setattr(LayerCallRecorder, "terms", terms)
    (way,) = ways(model)
    assert len(way.terms((x, torch.zeros(4)))) == len(Layout(model).parameters)
    (found,) = seen
    trained = [p for p in model.parameters() if p.requires_grad]
    assert sorted(p.numel() for p in found) == sorted(p.numel() for p in trained)
    assert all(len(of_one) == 1 for of_one in found.values())


def test_frozen_layers_leave_no_place_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a frozen base only what the trained head needs is kept."""
    torch.manual_seed(0)
    base = [part for _ in range(4) for part in (frozen(nn.Linear(5, 5)), nn.Tanh())]
    model = nn.Sequential(*base, nn.Linear(5, 2)).double()
    lengths: list[int] = []
    honest = LayerCallRecorder.edges
    monkeypatch.setattr(LayerCallRecorder, "edges", lambda self: lengths.append(len(found := honest(self))) or found)
    check(model, torch.randn(4, 5).double())
    assert set(lengths) == {1}


def test_an_input_changed_in_place_afterwards_is_unfit() -> None:
    """Torch itself refuses that where it needs the input."""

    def overwrites(m: Model, x: Tensor) -> Tensor:
        h = x * 2
        out = m.norm(h)
        h.zero_()
        return out

    model = Model(overwrites, norm=nn.LayerNorm(5)).double()
    with pytest.raises(StrategyNotApplicable, match="changed in place"):
        ways(model)[0].terms((torch.randn(4, *X).double(), torch.zeros(4)))


def test_a_weight_that_a_hook_computes() -> None:
    """Its factors are trained, and no rule knows them: the fast way would find zeros for them, and does not run."""
    torch.manual_seed(0)
    layer = nn.Linear(5, 5)
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.direction, layer.length = nn.Parameter(weight), bare(5, 1)
    layer.weight = weight
    layer.register_forward_pre_hook(lambda part, _: setattr(part, "weight", part.direction * part.length))
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(4, 5).double(), torch.zeros(4)
    model(x)  # which leaves a computed weight in the layer
    with pytest.raises(StrategyNotApplicable, match="computed from parameters"):
        ways(model)[0].terms((x, y))
    gradients = PerExampleGradients(model, bent)
    (rows,) = gradients.chunks((x, y))
    torch.testing.assert_close(rows, reference(model, bent, x, y), rtol=1e-10, atol=1e-12)
    assert gradients.path == "vmap"


def test_copies_are_not_shared_between_examples() -> None:
    """A parameter without a rule: its gradient for one example does not see the others."""
    model, x = build("bare parameters")
    (way,) = ways(model)
    rows = torch.empty(4, Layout(model).dim).double()
    way.rows((x, torch.zeros(4)), rows)
    for one in range(4):
        other = torch.randn(4, *X).double() * 100
        other[one] = x[one]
        again = torch.empty_like(rows)
        way.rows((other, torch.zeros(4)), again)
        torch.testing.assert_close(again[one], rows[one], rtol=1e-12, atol=1e-13)
