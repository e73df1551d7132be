"""Models with max-pools: gradients are those of autograd, whichever way the windows are computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from noisette._gradients import PerExampleGradients
from noisette._gradients.native_pooling import pooled

LAST = torch.channels_last


class Direct(nn.Module):
    """The function of torch itself, on images without a dimension for examples."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([torch.max_pool2d(image, 2) for image in images])


POOLS: dict[str, tuple[int, nn.Module]] = {
    "overlapping": (16, nn.MaxPool2d(2, stride=1)),
    "side by side": (8, nn.MaxPool2d(2)),
    "with a margin": (8, nn.MaxPool2d(3, stride=2, padding=1)),
    "not square": (8, nn.MaxPool2d((3, 2), stride=(1, 2))),
    "five channels": (5, nn.MaxPool2d(2)),
    "dilated": (8, nn.MaxPool2d(2, dilation=2)),
    "rounded up": (8, nn.MaxPool2d(4, stride=3, ceil_mode=True)),
    "called by itself": (8, Direct()),
}


@pytest.mark.parametrize("kernel", ["", "off"])
@pytest.mark.parametrize("name", POOLS)
def test_gradients_are_those_of_autograd(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", kernel)
    torch.manual_seed(0)
    channels, pool = POOLS[name]
    model = nn.Sequential(nn.Conv2d(3, channels, 3), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(4))
    x, y = torch.randn(6, 3, 9, 9), torch.randint(4, (6,))
    model(x)
    loss = nn.CrossEntropyLoss()
    gradients = PerExampleGradients(model, loss)
    (rows,) = gradients.chunks((x, y))
    assert gradients.path == "layers"
    for i, row in enumerate(rows):
        alone = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]), list(model.parameters()))
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in alone]), rtol=1e-4, atol=1e-5)


def test_the_derivative_of_ties_goes_to_the_first() -> None:
    """Of equal values torch takes the first, and so does the kernel: the two ways are one function."""
    images = torch.zeros(2, 8, 4, 4).to(memory_format=LAST).requires_grad_()
    found = vmap(lambda image: pooled(image, 2))(images)
    (derived,) = torch.autograd.grad(found.sum(), images)
    assert torch.equal(derived[1, 3], torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 0]]).repeat(2, 1))


def test_an_example_is_pooled_alone() -> None:
    """What the others are makes no difference to it, nor do they get a part of its derivative."""
    torch.manual_seed(0)
    images = torch.randn(5, 8, 6, 6).to(memory_format=LAST)
    other = images.clone(memory_format=torch.preserve_format)
    other[[0, 1, 3, 4]] = torch.nan
    for some in (images, other):
        some.requires_grad_()
    found, beside = (vmap(lambda image: pooled(image, 3, stride=1))(some) for some in (images, other))
    assert torch.equal(found[2], beside[2])
    (derived,) = torch.autograd.grad(found[2].sum(), images)
    assert derived[2].sum() == found[2].numel()
    assert not derived[[0, 1, 3, 4]].any()
