"""Gradients that the kernel computes and encodes in one go equal the rows that torch computes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from noisette import Encoder
from noisette._gradients import PerExampleGradients
from noisette._native import cpu
from noisette.app.models import cifar_cnn, mnist_cnn
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Blocks, HalfNormal, Tails
from tests.conformance.encoder_checks import outside_image
from tests.support.bucketed import VARIANTS
from tests.support.gradient_models import Residual, Then, Unused, Viewed, _frozen, _mlp

CONV: dict[str, tuple[nn.Conv2d, tuple[int, int]]] = {
    "3x3": (nn.Conv2d(3, 5, 3), (7, 7)),
    "1x1": (nn.Conv2d(3, 9, 1), (4, 6)),
    "8x8, stride 2, padded": (nn.Conv2d(1, 16, 8, stride=2, padding=3), (14, 14)),
    "row": (nn.Conv2d(2, 8, (1, 5), padding=(0, 2)), (3, 9)),
    "column": (nn.Conv2d(2, 7, (5, 1), padding=(1, 0)), (9, 3)),
    "not square": (nn.Conv2d(3, 10, (4, 2), stride=(3, 1), padding=(2, 1)), (11, 6)),
    "same, even": (nn.Conv2d(2, 6, (4, 2), padding="same"), (7, 5)),
    "same, odd": (nn.Conv2d(2, 17, (3, 5), padding="same"), (5, 7)),
    "valid": (nn.Conv2d(4, 33, 2, padding="valid"), (5, 5)),
    "gaps": (nn.Conv2d(5, 8, 2, stride=3), (9, 9)),
    "last rows unused": (nn.Conv2d(2, 4, 3, stride=4), (9, 10)),
    "one channel": (nn.Conv2d(1, 1, 3), (5, 5)),
    "one position": (nn.Conv2d(2, 3, 5), (5, 5)),
    "all padding at the rim": (nn.Conv2d(2, 3, 2, padding=1, stride=2), (4, 4)),
    "no bias": (nn.Conv2d(3, 16, 3, bias=False), (6, 6)),
    "many channels": (nn.Conv2d(13, 40, 3, padding=1), (6, 6)),
}


@pytest.fixture(params=VARIANTS, autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NOISETTE_KERNEL", request.param)
    return str(request.param)


def data(shape: tuple[int, ...], count: int = 5, classes: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(count, *shape), torch.randint(classes, (count,))


def rows_of(gradients: PerExampleGradients, x: Tensor, y: Tensor) -> Tensor:
    """The rows that torch computes, (B, dim)."""
    return torch.cat([rows.clone() for rows in gradients.chunks((x, y))])


def sums(model: nn.Module, encoder: Encoder, x: Tensor, y: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The fused sum or None, what `encoded_sum` gives, and the same from rows: all float64 (dim,)."""
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    found = gradients.encoded_sum(encoder, (x, y)).unsafe_values()
    return gradients._fused_sum(encoder, (x, y)), found, encoder.encode_sum(rows_of(gradients, x, y)).unsafe_values()


def check(model: nn.Module, shape: tuple[int, ...], *, count: int = 5, classes: int = 3) -> None:
    """Plain sums equal those of one backward pass in float64, encoded sums those of encoded rows."""
    x, y = data(shape, count, classes)
    model.zero_grad(set_to_none=True)
    double = model.double()
    F.cross_entropy(double(x.double()), y, reduction="sum").backward()
    exact = torch.cat([p.grad.flatten() for p in double.parameters() if p.requires_grad])
    size = float(exact.abs().max())
    gradients = PerExampleGradients(
        model.float(), nn.CrossEntropyLoss()
    )  # one for all: it tries the model when it begins
    dim = gradients.dim
    for encoder in (Ranked(dim=dim, radius=1e4 * size), L2(dim=dim, radius=100 * size)):
        found, fused = gradients.encoded_sum(encoder, (x, y)).unsafe_values(), gradients._fused_sum(encoder, (x, y))
        assert fused is not None
        assert torch.equal(found, fused)
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5 * size + count * encoder.quantum)
    table = rows_of(gradients, x, y)
    for encoder in (
        Ranked(dim=dim, profiles=Tails(), radius=0.1 * size),
        Snap(dim=dim),
        L2(dim=dim, radius=0.1 * size),
    ):
        found, rows = gradients.encoded_sum(encoder, (x, y)).unsafe_values(), encoder.encode_sum(table).unsafe_values()
        # a last bit may move a coordinate into the next bucket
        assert float((found - rows).norm() / rows.norm()) < (0.02 if isinstance(encoder, Snap) else 5e-3)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's own, once
@pytest.mark.parametrize("name", CONV)
def test_convolutions(name: str) -> None:
    layer, (high, wide) = CONV[name]
    shape = (layer.in_channels, high, wide)
    size = layer(torch.zeros(1, *shape)).numel()
    torch.manual_seed(1)
    layer.reset_parameters()
    check(Then(layer, size), shape)


@pytest.mark.parametrize("frozen", ["layer.weight", "layer.bias", "head.weight", "head.bias"])
def test_frozen_parts(frozen: str) -> None:
    torch.manual_seed(1)
    model = Then(nn.Conv2d(2, 5, 3, padding=1), 5 * 5 * 5)
    model.get_parameter(frozen).requires_grad_(False)
    check(model, (2, 5, 5))


MODELS = {
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "mlp": (_mlp, (6,)),
    "mlp, frozen": (lambda: _frozen(_mlp(), "0.weight", "4.bias"), (6,)),
    "residual": (Residual, (2, 6, 5)),
    "viewed": (Viewed, (2, 7, 7)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    torch.manual_seed(1)
    make, shape = MODELS[name]
    check(make(), shape)


def test_networks_of_the_recipes() -> None:
    torch.manual_seed(1)
    check(mnist_cnn(), (1, 28, 28), count=20, classes=10)
    check(cifar_cnn(width=8), (3, 32, 32), count=4, classes=10)


def test_more_examples_than_are_held_at_a_time() -> None:
    check(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), (6,), count=300)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 20)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.25, 1.0]),
)
def test_any_convolution(
    channels: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    count: int,
    share: float,
) -> None:
    """Straight into the module, against torch's own derivative by the weight; a share of what comes in is not zero."""
    assume(all(n + 2 * p >= k for n, p, k in zip(size, padding, kernel, strict=True)))
    torch.manual_seed(0)
    x = torch.randn(count, channels[0], *size)
    shape = (channels[1], channels[0], *kernel)
    g = torch.randn_like(F.conv2d(x, torch.zeros(shape), stride=stride, padding=padding))
    g = torch.where(torch.rand_like(g) < share, g, 0.0)
    exact = nn.grad.conv2d_weight(x.double(), shape, g.double(), stride=stride, padding=padding)
    layers = cpu.new_layers()
    last = [t.permute(0, 2, 3, 1).contiguous() for t in (x, g)]
    layers.conv(*last, list(kernel), list(stride), [*padding, *padding], 0)
    total = torch.zeros(exact.numel(), dtype=torch.float64)
    clipping = cpu.l2_kernel(radius=1e9, step=2.0**-20)
    assert clipping is not None
    assert torch.equal(clipping.clip(layers, total, torch.zeros(count).double()), torch.ones(count).double())
    weight = total.view(channels[1], *kernel, channels[0]).movedim(-1, 1)
    torch.testing.assert_close(weight, exact, rtol=0, atol=1e-5 * max(1.0, float(exact.abs().max())))


@pytest.mark.parametrize("shift", [0, 1])
def test_blocks(shift: int) -> None:
    """A block for each layer is fused; blocks that cut a parameter in two go through rows. Both are in the image."""
    torch.manual_seed(1)
    model = mnist_cnn()
    dims = (1040 + shift, 8224, 16416, 330 - shift)
    encoder = Ranked(dim=26_010, profiles=Blocks(dims=dims, profiles=Tails()), radius=0.1)
    x, y = data((1, 28, 28), 6, 10)
    fused, found, rows = sums(model, encoder, x, y)
    assert (fused is None) == (shift == 1)
    assert float((found - rows).norm() / rows.norm()) < (1e-3 if fused is not None else 1e-9)


def test_one_example_is_in_the_image() -> None:
    """P1 for the fused path: what one example adds, with the others zeroed by a NaN, rank by rank and exactly."""
    torch.manual_seed(1)
    model = mnist_cnn()
    blocks = Blocks(dims=(1040, 8224, 16416, 330), profiles=Tails())
    x, y = data((1, 28, 28), 12, 10)
    for encoder in (
        Ranked(dim=26_010, profiles=blocks, radius=0.01),
        Snap(dim=26_010),
        L2(dim=26_010, radius=0.01),
    ):
        gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
        gradients.check((x, y))
        encoded = []
        for one in range(len(x)):
            broken = torch.full_like(x, torch.nan)
            broken[one] = x[one] * 100.0**one
            total = gradients._fused_sum(encoder, (broken, y))
            assert total is not None
            encoded.append(total)
        table = torch.stack(encoded)
        assert outside_image(table, encoder.image) == []
        assert (table.abs().sum(dim=1) > 0).sum() >= 6


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 2, dilation=2)], ids=repr)
def test_rows_that_the_kernel_does_not_make_itself(layer: nn.Conv2d) -> None:
    """Groups and dilation: torch computes the rows, the kernel encodes them beside its own."""
    torch.manual_seed(1)
    x, y = data((4, 7, 7))
    model = Then(layer, layer(x[:1]).numel())
    check(model, (4, 7, 7))
    encoder = Ranked(dim=PerExampleGradients(model, nn.CrossEntropyLoss()).dim, profiles=HalfNormal())
    fused, found, rows = sums(model, encoder, x, y)
    assert fused is not None
    torch.testing.assert_close(found, rows, rtol=0, atol=1e-6)


def test_a_layer_that_does_not_matter() -> None:
    torch.manual_seed(1)
    model = Unused()
    x, y = data((6,))
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    for encoder in (Ranked(dim=gradients.dim), L2(dim=gradients.dim)):
        found = gradients.encoded_sum(encoder, (x, y)).unsafe_values()
        rows = encoder.encode_sum(rows_of(gradients, x, y)).unsafe_values()
        # sums by products are clipped a little shorter
        torch.testing.assert_close(found, rows, rtol=3e-4, atol=1e-6)
        assert found.abs().sum() > 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
def test_a_broken_example_counts_as_zero(bad: float) -> None:
    """3e38 overflows in the sums of the second convolution: infinite, so the whole example is left out."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Conv2d(5, 4, 3), nn.Flatten(), nn.Linear(4 * 16, 3))
    x, y = data((1, 8, 8), 9)
    dim = PerExampleGradients(model, nn.CrossEntropyLoss()).dim
    keep = [0, 1, 2, 3, 5, 6, 7, 8]
    for encoder in (Ranked(dim=dim), L2(dim=dim)):
        gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
        expected = gradients.encoded_sum(encoder, (x[keep], y[keep])).unsafe_values()
        broken = x.clone()
        broken[4, 0] = bad
        found = gradients._fused_sum(encoder, (broken, y))
        assert found is not None
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_under_autocast() -> None:
    """Derivatives in sixteen bits are made longer, not read as something else."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(5 * 16, 3))
    x, y = data((1, 6, 6), 6)
    encoder = Ranked(dim=PerExampleGradients(model, nn.CrossEntropyLoss()).dim, radius=1e6)
    plain = PerExampleGradients(model, nn.CrossEntropyLoss()).encoded_sum(encoder, (x, y)).unsafe_values()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = PerExampleGradients(model, nn.CrossEntropyLoss()).encoded_sum(encoder, (x, y)).unsafe_values()
    assert 0 < float((short - plain).norm() / plain.norm()) < 0.05


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bad", [1e20, torch.nan, torch.inf])
@pytest.mark.parametrize("clipping", [False, True])
def test_a_product_that_is_not_finite_counts_as_zero(clipping: bool, bad: float, bias: bool) -> None:
    """1e20 is finite, its square in float32 is not: the example is left out, as in rows, with a bias and without."""
    x, g = torch.ones(3, 5), torch.ones(3, 2)
    x[1, 4], g[1, 1] = bad, 1e20
    dim = 12 if bias else 10
    kernel = (L2(dim=dim) if clipping else Ranked(dim=dim)).kernel()
    assert kernel is not None
    found = []
    for keep in ([0, 1, 2], [0, 2]):
        layers, total = cpu.new_layers(), torch.zeros(dim, dtype=torch.float64)
        layers.linear(x[keep], g[keep], 0)
        if bias:
            layers.rows(g[keep], 10)
        if clipping:
            factors = kernel.clip(layers, total, torch.zeros(len(keep)).double())
            assert (factors == 0).tolist() == [number == 1 for number in keep]
        else:
            kernel.add(layers, total)
        found.append(total)
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_derivative_but_zero_is_left_out(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a maximum most are zero, each channel's in other places; the others count, however small they are."""
    monkeypatch.setenv("NOISETTE_KERNEL", variant)
    torch.manual_seed(0)
    x, g = torch.randn(3, 6, 7, 2), torch.randn(3, 5, 6, 19)
    g = torch.where(torch.rand_like(g) < 0.3, g, 0.0) * 10.0 ** torch.randint(-30, 3, (19,))
    first = [part.movedim(-1, 1).double() for part in (x, g)]
    exact = nn.grad.conv2d_weight(first[0], (19, 2, 2, 2), first[1]).movedim(1, -1)
    for channel in range(19):
        alone, one = cpu.new_layers(), torch.zeros(8, dtype=torch.float64)
        alone.conv(x, g[..., channel : channel + 1].contiguous(), [2, 2], [1, 1], [0, 0, 0, 0], 0)
        size = float(exact[channel].abs().max())
        kernel = cpu.l2_kernel(radius=1e9, step=2.0 ** (math.frexp(size)[1] - 24))
        assert kernel is not None
        kernel.clip(alone, one, torch.zeros(3).double())
        torch.testing.assert_close(one / size, exact[channel].flatten() / size, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_convolution_of_what_is_not_finite_counts_as_zero(bad: float) -> None:
    """Derivatives that are zero are left out, but not here: zero times infinity is no number."""
    x, g = torch.ones(3, 4, 4, 2), torch.ones(3, 3, 3, 3)
    x[1, 3, 3, 1], g[1, 2, 2] = bad, 0.0
    kernel = L2(dim=24).kernel()
    assert kernel is not None
    layers, total = cpu.new_layers(), torch.zeros(24, dtype=torch.float64)
    layers.conv(x, g, [2, 2], [1, 1], [0, 0, 0, 0], 0)
    factors = kernel.clip(layers, total, torch.zeros(3).double())
    assert (factors == 0).tolist() == [False, True, False]
    assert total.isfinite().all()
