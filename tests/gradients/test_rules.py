"""The rule for Conv2d under all of its settings, against torch's own backward pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from noisette.gradients import Gradients, rules
from tests.gradients.models import Then, all_rows, reference

even = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's own, about speed


@even
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3},
        {"kernel_size": (2, 3), "stride": (2, 1)},
        {"kernel_size": 3, "padding": (2, 1), "bias": False},
        {"kernel_size": (4, 3), "padding": "same", "dilation": (1, 2)},
        {"kernel_size": 2, "padding": "valid", "dilation": (3, 2)},
        {"kernel_size": 3, "groups": 2, "padding": 1},
        {"kernel_size": 3, "groups": 4, "stride": 3, "padding": 2},
        {"kernel_size": 1},
    ],
    ids=str,
)
def test_conv2d_inside_a_model(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 8, **options)
    x, y = torch.randn(5, 4, 9, 8).double(), torch.randint(3, (5,))
    model = Then(conv, conv(x.float()).flatten(1).shape[1]).double()
    gradients = Gradients(model, nn.CrossEntropyLoss(), chunk=2)
    torch.testing.assert_close(
        all_rows(gradients, x, y), reference(model, nn.CrossEntropyLoss(), x, y), rtol=1e-10, atol=1e-12
    )
    assert gradients.path == "layers"


@even
@settings(max_examples=60)
@given(
    groups=st.integers(1, 3),
    inner=st.integers(1, 3),
    outer=st.integers(1, 3),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)) | st.sampled_from(["same", "valid"]),
    size=st.tuples(st.integers(7, 10), st.integers(7, 10)),
    last=st.booleans(),
)
def test_conv2d_under_any_setting(groups, inner, outer, kernel, stride, dilation, padding, size, last) -> None:
    stride = (1, 1) if padding == "same" else stride
    generator = torch.Generator().manual_seed(0)
    conv = nn.Conv2d(
        groups * inner, groups * outer, kernel, stride=stride, dilation=dilation, padding=padding, groups=groups
    ).double()
    x = torch.randn(2, groups * inner, *size, generator=generator).double()
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    output = conv(x)
    g = torch.randn(output.shape, generator=generator).double()
    weight, bias = torch.empty(2, *conv.weight.shape).double(), torch.empty(2, groups * outer).double()
    rules.conv2d(conv, x, g, weight, bias)
    for i in range(2):
        expected = torch.autograd.grad(conv(x[i : i + 1]), (conv.weight, conv.bias), g[i : i + 1])
        torch.testing.assert_close(weight[i], expected[0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(bias[i], expected[1], rtol=1e-10, atol=1e-12)


def test_only_the_classes_themselves_have_a_rule() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    assert not rules.supported(Scaled(2, 2))
    assert not rules.supported(nn.LayerNorm(2))
    assert not rules.supported(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"))
    assert not rules.supported(torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    extended = nn.Linear(2, 2)
    extended.register_parameter("temperature", nn.Parameter(torch.ones(())))
    assert not rules.supported(extended)
    torch.manual_seed(0)
    model, x, y = Scaled(4, 3).double(), torch.randn(5, 4).double(), torch.randint(3, (5,))
    gradients = Gradients(model, nn.CrossEntropyLoss())
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, nn.CrossEntropyLoss(), x, y))
    assert gradients.path == "vmap"


def test_a_weight_that_is_computed_goes_the_general_path() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Linear(3, 3)).double()
    x, y = torch.randn(5, 4).double(), torch.randint(3, (5,))
    gradients = Gradients(model, nn.CrossEntropyLoss())
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, nn.CrossEntropyLoss(), x, y))
    assert gradients.path == "vmap"
