"""Convolutions of images with few channels by the kernel, beside torch's."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import _native
from noisette._gradients import PerExampleGradients
from tests.support.bucketed import VARIANTS

LAYERS = {
    "of MNIST": (nn.Conv2d(1, 16, 8, stride=2, padding=3), (28, 28)),
    "3x3": (nn.Conv2d(3, 8, 3, padding=1), (32, 32)),
    "24 filters": (nn.Conv2d(2, 24, (2, 3), stride=(3, 1)), (9, 17)),
    "one place": (nn.Conv2d(4, 8, 5), (5, 5)),
}


def filtered(layer: nn.Conv2d, x: Tensor, variant: str, threads: int = 1) -> Tensor:
    """What the kernel makes of x (B, in, h, w)."""
    assert layer.bias is not None
    places = F.conv2d(x, layer.weight, None, layer.stride, layer.padding).shape[2:]
    out = torch.full((len(x), *places, layer.out_channels), torch.nan)
    parts = [
        part.detach().contiguous() for part in (x.permute(0, 2, 3, 1), layer.weight.permute(2, 3, 1, 0), layer.bias)
    ]
    margins = [int(margin) for margin in (*layer.padding, *layer.padding)]
    _native.native.filter(*parts, out, list(layer.stride), margins, threads, variant)
    return out.permute(0, 3, 1, 2)


@pytest.mark.parametrize(("variant", "name"), list(itertools.product(VARIANTS, LAYERS)))
def test_numbers_are_those_of_torch(variant: str, name: str) -> None:
    """And the same to the last bit for an example alone, and on several threads."""
    layer, size = LAYERS[name]
    x = torch.randn(5, layer.in_channels, *size, generator=torch.Generator().manual_seed(0))
    found = filtered(layer, x, variant)
    with torch.no_grad():
        exact = F.conv2d(
            x.double(), layer.weight.double(), layer.bias.double(), layer.stride, layer.padding
        )  # of any layout
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)
    assert torch.equal(filtered(layer, x, variant, threads=3), found)
    assert torch.equal(filtered(layer, x[3:4], variant), found[3:4])
    x[:3] = torch.nan
    assert torch.equal(filtered(layer, x, variant)[3:], found[3:])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kernel", ["", "off"])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_gradients_are_those_of_autograd(bias: bool, kernel: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", kernel)
    torch.manual_seed(0)
    first = nn.Conv2d(1, 16, 4, stride=2, padding=1, bias=bias, padding_mode=mode)
    model = nn.Sequential(first, nn.Tanh(), nn.Flatten(), nn.Linear(16 * 16, 3))
    x, y = torch.randn(4, 1, 8, 8), torch.randint(3, (4,))
    loss = nn.CrossEntropyLoss()
    (rows,) = PerExampleGradients(model, loss).chunks((x, y))
    for i, row in enumerate(rows):
        alone = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]), list(model.parameters()))
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in alone]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"out": torch.empty(2, 4, 3, 8)}, "higher"),
        ({"out": torch.empty(2, 3, 4, 8)}, "wider"),
        ({"out": torch.empty(3, 3, 3, 8)}, "numbers of examples"),
        ({"out": torch.empty(2, 3, 3, 12)}, "by eights"),
        ({"out": torch.empty(2, 3, 0, 8)}, "empty"),
        ({"bias": torch.zeros(7)}, "numbers of channels"),
        ({"weight": torch.zeros(2, 2, 1, 8)}, "numbers of channels"),
        ({"stride": [1, 0]}, "positive"),
        ({"stride": [1]}, "2, 4 numbers"),
        ({"margins": [0, 0, 0, -1]}, "not negative"),
        ({"isa": "none"}, "instruction set"),
        ({"threads": 0}, "one thread"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], told: str) -> None:
    given = {
        "x": torch.zeros(2, 4, 4, 3),
        "weight": torch.zeros(2, 2, 3, 8),
        "bias": torch.zeros(8),
        "out": torch.empty(2, 3, 3, 8),
        "stride": [1, 1],
        "margins": [0, 0, 0, 0],
        "threads": 1,
        "isa": "plain",
    }
    _native.native.filter(**given)
    with pytest.raises(ValueError, match=told):
        _native.native.filter(**given | changed)
