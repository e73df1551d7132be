"""Every rule against autograd one example at a time, and under every encoder."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from noisette import Encoder
from noisette._gradients import PerExampleGradients, rules
from noisette._gradients.flat_params import Layout
from noisette._gradients.rules.base import _RULES, Rule
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Blocks, HalfNormal, Tails
from noisette.errors import InvalidInput
from tests.support.gradient_models import all_rows, reference
from tests.support.helpers import refused
from tests.support.rule_cases import CASES, CONV, On, adapted, alone, bent, build, check, many, plain, ways

even = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's own, about speed


@pytest.mark.parametrize("name", CASES)
def test_every_rule(name: str) -> None:
    check(*build(name))


def test_every_rule_is_in_the_table() -> None:
    used: set[type[Rule]] = set()
    for make, _, _ in CASES.values():
        used |= {type(rule) for layer in make().modules() if (rule := rules.find(layer)) is not None}
    ours = {type(rule) for rule in _RULES.values() if type(rule).__module__.startswith("noisette.")}
    assert used == ours


def encoders(layout: Layout, radius: float) -> list[Encoder]:
    """Every encoder, and those by rank also with a block for every parameter."""
    dims = tuple(p.numel() for p in layout.parameters)
    blocks = [Blocks(dims=dims, profiles=Tails())] if len(dims) > 1 else []
    by_rank = [
        kind(dim=layout.dim, profiles=p, radius=radius) for kind in (Ranked, Snap) for p in (HalfNormal(), *blocks)
    ]
    return [L2(dim=layout.dim, radius=radius), L2(dim=layout.dim, radius=1e3 * radius), *by_rank]


# one case of every kind of term, alone and beside others
ENCODED = [
    "Linear, a vector, bias=True",
    "Linear, a sequence, bias=True",
    "Conv1D of transformers, (5,)",
    "Conv1D of transformers, (4, 5)",
    "LoRA, (4, 5), trained=True",
    "LoRA, wide",
    "Embedding, (6,), padding_idx=2",
    "LayerNorm 6 on (4, 6), {}",
    "RMSNorm 6 on (4, 6)",
    "GroupNorm 2 on (4, 3)",
    "InstanceNorm2d",
    "Conv1d, {'kernel_size': 3}",
    "Conv2d, {'kernel_size': 3}",
    "Conv2d, {'kernel_size': 3, 'groups': 2, 'padding': 1}",
    "Conv2d, many",
    "Conv3d, {'kernel_size': 2, 'stride': 2}",
    "LSTM, 2 layers, both=False, bias=True, first=True, given=True, single=False",
    "GRU, 1 layers, both=True, bias=True, first=True, given=False, single=False",
    "MultiheadAttention '', bias=True, first=True",
    "MultiheadAttention 'three', bias=True, first=True",
]


@pytest.mark.parametrize("name", ENCODED)
def test_encoded_sums_are_those_of_encoded_rows(name: str) -> None:
    model, x = build(name, torch.float32, count=9)
    y = torch.zeros(9)
    layout = Layout(model)
    rows = torch.empty(9, layout.dim)
    ways(model)[-1].rows((x, y), rows)
    radius = 0.5 * float(rows.norm(dim=1).median())
    for encoder in encoders(layout, radius):
        gradients = PerExampleGradients(model, bent)
        found = gradients._fused_sum(encoder, (x, y))
        assert found is not None
        expected = encoder.encode_sum(rows).unsafe_values()
        # a last bit may move a coordinate into the next bucket, of which a small layer has few
        assert float((found - expected).norm() / expected.norm()) < (0.02 if isinstance(encoder, Snap) else 1e-3), (
            encoder
        )


@even
@settings(max_examples=30)
@given(
    space=st.integers(1, 3),
    groups=st.integers(1, 3),
    inner=st.integers(1, 2),
    outer=st.integers(1, 2),
    kernel=st.tuples(*[st.integers(1, 4)] * 3),
    stride=st.tuples(*[st.integers(1, 3)] * 3),
    dilation=st.tuples(*[st.integers(1, 2)] * 3),
    padding=st.tuples(*[st.integers(0, 3)] * 3) | st.sampled_from(["same", "valid"]),
    mode=st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
    size=st.tuples(*[st.integers(7, 8)] * 3),
    bias=st.booleans(),
    call=st.sampled_from([plain, many, alone]),
)
def test_any_convolution(
    space, groups, inner, outer, kernel, stride, dilation, padding, mode, size, bias, call
) -> None:  # fmt: skip
    torch.manual_seed(0)
    conv = CONV[space](
        groups * inner,
        groups * outer,
        kernel[:space],
        stride=1 if padding == "same" else stride[:space],
        dilation=dilation[:space],
        padding=padding if isinstance(padding, str) else padding[:space],
        padding_mode=mode,
        groups=groups,
        bias=bias,
    )
    shape = (groups * inner, *size[:space])
    x = torch.randn(2, *((2,) if call is many else ()), *shape).double()
    check(On(conv, call).double(), x)


@settings(max_examples=25)
@given(
    lead=st.lists(st.integers(1, 4), max_size=3),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    bias=st.booleans(),
)
def test_any_linear_layer(lead: list[int], size: tuple[int, int], bias: bool) -> None:
    torch.manual_seed(0)
    check(On(nn.Linear(*size, bias=bias), plain).double(), 1 + torch.randn(3, *lead, size[0]).double())


@settings(max_examples=25)
@given(
    index=st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=3, max_size=5),
    padding=st.none() | st.integers(-6, 5),
)
def test_any_table(index: list[list[int]], padding: int | None) -> None:
    torch.manual_seed(0)
    table = On(nn.Embedding(6, 3, padding_idx=padding), plain).double()
    x = torch.tensor(index)
    x[0, 0] = (0 if padding is None else padding + 1) % 6  # something that counts
    check(table, x)


OTHER_ADAPTERS = {
    "dropout": {"lora_dropout": 0.1},
    "of magnitude and direction": {"use_dora": True},
    "with a bias": {"lora_bias": True},
}


@pytest.mark.parametrize("options", OTHER_ADAPTERS.values(), ids=OTHER_ADAPTERS)
def test_other_adapters_are_run_by_peft(options: dict[str, Any]) -> None:
    assert rules.find(adapted()) is not None
    assert rules.find(adapted(**options)) is None


def test_what_an_adapter_is_changes_with_its_use() -> None:
    """One that is switched off, merged, joined by another or watched is run by peft."""
    off, merged, joined, watched = (adapted() for _ in range(4))
    off.enable_adapters(False)
    merged.merge()
    peft.inject_adapter_in_model(peft.LoraConfig(r=1, target_modules=["0"]), nn.Sequential(joined), "second")
    watched.lora_A["default"].register_forward_hook(lambda *_: None)
    assert [rules.find(layer) for layer in (off, merged, joined, watched)] == [None] * 4


@pytest.mark.parametrize("tokens", [2, 3])
def test_how_adapters_run_does_not_depend_on_the_company(tokens: int) -> None:
    """The same bits among 16 and among 64: how many examples there are does not decide which products are taken."""
    torch.manual_seed(0)
    model, x = adapted(nn.Linear(40, 40)), torch.randn(64, tokens, 40)
    (way,) = ways(model)
    few, many = (
        [term.rows(slice(0, 4), torch.empty(4, 80)) for term in way.terms((x[:count], torch.zeros(count)))]
        for count in (16, 64)
    )
    assert all(map(torch.equal, few, many))


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_adapters_count_beside_weights_of_few_bits(weights: torch.dtype) -> None:
    """A half, added to 256, is lost in bfloat16; added to what 256 - 256 makes, it is not."""
    layer = adapted(nn.Linear(2, 1)).to(weights)
    values = {"lora_A": [[1.0, 0.0], [0.0, 0.0]], "lora_B": [[0.5 / 3, 0.0]], "bias": [0.0], "weight": [[256.0, 256.0]]}
    for name, parameter in layer.named_parameters():
        parameter.data.copy_(torch.tensor(next(value for key, value in values.items() if key in name)))
    x, y = torch.tensor([[1.0, -1.0]]).to(weights).expand(16, 2), torch.zeros(16)
    with torch.autocast("cpu", torch.bfloat16, enabled=weights == torch.float32):
        rows = all_rows(PerExampleGradients(layer, bent), x, y)
        expected = reference(layer, bent, x, y)
    torch.testing.assert_close(rows, expected.float(), rtol=0.02, atol=1e-3)
    assert 0.8 < float(rows[0, 0]) / (3 * 0.5 / 3) < 0.95, "the cosine of a half, and not of 0"


def test_an_adapter_that_is_merged_gets_no_gradient_and_one_that_is_merged_later_is_refused() -> None:
    """The rule says no when it runs, and the model's own code decides."""
    torch.manual_seed(0)
    model = nn.Sequential(adapted(), nn.Linear(3, 3)).double()
    x, y, loss = torch.randn(6, 4, 5).double(), torch.randint(3, (6, 3)), nn.CrossEntropyLoss()
    gradients = PerExampleGradients(model, loss)
    assert all_rows(gradients, x, y)[:, 0].abs().min() > 0
    model[0].merge()
    with refused(InvalidInput, match="otherwise than when it was checked"):
        all_rows(gradients, x, y)
    rows = all_rows(PerExampleGradients(model, loss), x, y)
    torch.testing.assert_close(rows, reference(model, loss, x, y))
    first = model[0].lora_A["default"].weight.numel()
    assert not rows[:, :first].any()


class Scaled(nn.Linear):
    """Computes something else than its base."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_only_the_classes_themselves_have_a_rule() -> None:
    assert rules.find(nn.Linear(2, 2)) is not None
    replaced = nn.Linear(2, 2)
    replaced.forward = lambda x: x
    for layer in (
        *(Scaled(2, 2), replaced, nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
        *(nn.Embedding(3, 2, max_norm=1.0), nn.Embedding(3, 2, scale_grad_by_freq=True), nn.LSTM(2, 3, proj_size=2)),
        *(nn.MultiheadAttention(4, 2, kdim=3), nn.MultiheadAttention(4, 2, add_bias_kv=True)),
        *(nn.MultiheadAttention(4, 2, add_zero_attn=True), nn.InstanceNorm1d(3, track_running_stats=True)),
    ):
        assert rules.find(layer) is None, layer


@pytest.mark.parametrize(
    ("layer", "copied"),
    [
        (nn.MultiheadAttention(4, 2, kdim=4, vdim=4, add_bias_kv=True, batch_first=True), 4),
        (nn.MultiheadAttention(4, 2, add_zero_attn=True, batch_first=True), 2),
    ],
    ids=["biases of keys", "a zero"],
)
def test_what_no_rule_covers_is_copied(layer: nn.MultiheadAttention, copied: int) -> None:
    """Their own output layer still has its rule, where it is called; attention computes with its weights instead."""
    torch.manual_seed(0)
    model = On(layer, lambda part, x: part(x, x, x)[0]).double()
    check(model, torch.randn(4, 5, 4).double(), copied=copied + 2)


def test_a_class_of_its_own_goes_the_general_way() -> None:
    torch.manual_seed(0)
    model, x, y = Scaled(4, 3).double(), torch.randn(5, 4).double(), torch.randint(3, (5,))
    loss = nn.CrossEntropyLoss()
    gradients = PerExampleGradients(model, loss)
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, loss, x, y))
    assert gradients.path == "vmap"


def test_a_weight_that_is_computed_goes_the_general_path() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Linear(3, 3)).double()
    x, y, loss = torch.randn(5, 4).double(), torch.randint(3, (5,)), nn.CrossEntropyLoss()
    gradients = PerExampleGradients(model, loss)
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, loss, x, y))
    assert gradients.path == "vmap"
