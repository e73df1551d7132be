"""Max-pooling by the kernel, beside torch's: the same to the last bit, also of ties and of what is not finite."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from noisette import _native
from tests.support.bucketed import VARIANTS

SHAPES = {
    "overlapping": ((5, 14, 14, 16), (2, 2), (1, 1), (0, 0)),
    "side by side": ((3, 8, 9, 8), (2, 2), (2, 2), (0, 0)),
    "of a ResNet": ((4, 9, 11, 24), (3, 3), (2, 2), (1, 1)),
    "not square": ((2, 7, 10, 8), (4, 1), (3, 2), (2, 0)),
    "with gaps": ((2, 11, 10, 8), (2, 3), (4, 5), (1, 1)),
    "one": ((1, 1, 1, 8), (1, 1), (1, 1), (0, 0)),
    "none": ((0, 4, 4, 8), (2, 2), (2, 2), (0, 0)),
}


def images(kind: str, shape: tuple[int, ...]) -> Tensor:
    """Images NHWC: without ties, with many, or with numbers that are none."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if kind == "ties":
        return x.mul(2).round().relu()
    for bad in (torch.nan, torch.inf, -torch.inf) if kind == "bad" else ():
        x[torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.2] = bad
        x = x.roll(1, -1)
    return x


@pytest.mark.parametrize(("variant", "name"), list(itertools.product(VARIANTS, SHAPES)))
@pytest.mark.parametrize("kind", ["distinct", "ties", "bad"])
@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_those_of_torch(variant: str, name: str, kind: str, threads: int) -> None:
    """Values, and where the derivative goes."""
    shape, *how = SHAPES[name]
    x = images(kind, shape)
    first = x.movedim(-1, 1).contiguous().requires_grad_()
    expected = F.max_pool2d(first, *how)
    g = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    (derived,) = torch.autograd.grad(expected, first, g)
    out = torch.empty(expected.movedim(1, -1).shape)
    taps, back = torch.empty(out.shape, dtype=torch.int32), torch.empty(shape)
    pairs = [list(pair) for pair in how]
    _native.native.pool(x, out, taps, *pairs, threads, variant)
    _native.native.unpool(g.movedim(1, -1).contiguous(), taps, back, *pairs, threads, variant)
    torch.testing.assert_close(out.movedim(-1, 1), expected.detach(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(back.movedim(-1, 1), derived)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"out": torch.empty(2, 3, 2, 8)}, "as many windows"),
        ({"taps": torch.empty(2, 2, 2, 16, dtype=torch.int32)}, "every output has a tap"),
        ({"x": torch.zeros(3, 4, 4, 8)}, "numbers of examples"),
        ({"kernel": [2]}, "2 numbers each"),
        ({"kernel": [5, 2]}, "as many windows"),
        ({"stride": [0, 2]}, "no window"),
        ({"pad": [0, 2]}, "no window"),
        ({"isa": "none"}, "instruction set"),
        ({"threads": 0}, "one thread"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], told: str) -> None:
    given = {
        "x": torch.zeros(2, 4, 4, 8),
        "out": torch.empty(2, 2, 2, 8),
        "taps": torch.zeros(2, 2, 2, 8, dtype=torch.int32),
        "kernel": [2, 2],
        "stride": [2, 2],
        "pad": [0, 0],
        "threads": 1,
        "isa": "plain",
    } | changed
    with pytest.raises(ValueError, match=told):
        _native.native.pool(**given)
    back = {"g": given.pop("out"), "out": given.pop("x"), **given}
    with pytest.raises(ValueError, match=told):
        _native.native.unpool(**back)


def test_channels_that_are_no_eights_are_refused() -> None:
    taps = torch.empty(1, 1, 1, 9, dtype=torch.int32)
    with pytest.raises(ValueError, match="by eights"):
        _native.native.pool(torch.zeros(1, 2, 2, 9), torch.empty(1, 1, 1, 9), taps, [2, 2], [2, 2], [0, 0], 1, "plain")
