"""Models with hyperbolic tangents: gradients are those of autograd, however the tangent is asked for and computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import vmap

from noisette import _native
from noisette._gradients import PerExampleGradients
from noisette._gradients.native_activations import tangent


class Applied(nn.Module):
    """Some function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


TANGENTS: dict[str, nn.Module] = {
    "a layer": nn.Tanh(),
    "a function": Applied(F.tanh),
    "a method": Applied(Tensor.tanh),
    "in place": Applied(torch.tanh_),
    "every second column": Applied(lambda x: torch.tanh(x[..., ::2])),
    "with its place": Applied(lambda x: torch.tanh(x, out=None)),
}


@pytest.mark.parametrize("kernel", ["", "off"])
@pytest.mark.parametrize("name", TANGENTS)
def test_gradients_are_those_of_autograd(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", kernel)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), TANGENTS[name], nn.Flatten(), nn.LazyLinear(4), nn.Tanh())
    x, y = torch.randn(6, 3, 7, 7), torch.randint(4, (6,))
    model(x)
    loss = nn.CrossEntropyLoss()
    gradients = PerExampleGradients(model, loss)
    (rows,) = gradients.chunks((x, y))
    assert gradients.path == "layers"
    for i, row in enumerate(rows):
        alone = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]), list(model.parameters()))
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in alone]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 1e-6), (torch.float64, 0.0), (torch.bfloat16, 0.0)])
def test_all_orders_and_precisions(dtype: torch.dtype, apart: float) -> None:
    """Channels last, transposed, with gaps, expanded: every number is in its place, and so is its derivative."""
    made = torch.randn(5, 8, 6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    last, same = made.to(memory_format=torch.channels_last), made[:, :1].expand(5, 3, 6, 4)
    for x in (made, last, made.mT, made[..., ::2], same):
        seen = x.detach().requires_grad_()
        found = vmap(tangent)(seen)
        torch.testing.assert_close(found, torch.tanh(x), rtol=apart, atol=0)
        (derived,) = torch.autograd.grad(found.sum(), seen)
        (expected,) = torch.autograd.grad(torch.tanh(seen).sum(), seen)
        torch.testing.assert_close(derived, expected, rtol=0, atol=3 * apart)


def test_an_example_is_alone() -> None:
    """What the others are makes no difference to it, to the last bit."""
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(0))
    other = x.clone()
    other[[0, 1, 3, 4]] = torch.nan
    assert torch.equal(vmap(tangent)(x)[2], vmap(tangent)(other)[2])


def test_the_kernel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """For images with channels last too, as the first candidate of the fast ways has them."""
    taken = list[int]()
    honest = _native.native.tanh

    def seen(x: Tensor, *rest: object) -> None:
        taken.append(len(x))
        honest(x, *rest)

    monkeypatch.setattr(_native.native, "tanh", seen)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 25, 4))
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    batch = torch.randn(6, 3, 7, 7), torch.randint(4, (6,))
    list(gradients.chunks(batch))  # which tries this number of examples first
    taken.clear()
    list(gradients.chunks(batch))
    assert taken == [6 * 8 * 25]
