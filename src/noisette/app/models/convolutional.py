"""Convolutional networks for images, without layers that mix examples.

Activations never fall, so that the largest activation is the activation of the largest: where windows do not overlap,
pooling comes first, and the activation takes a quarter of the time.
"""

from __future__ import annotations

from torch import Tensor, nn

from noisette._spec import whole
from noisette.app.models.activations import MOST, activation_module
from noisette.errors import InvalidInput

__all__ = ["cifar_cnn", "digits_cnn", "maps_cnn", "mnist_cnn"]


class Centred(nn.Module):
    """Pixels from [0, 1] to [-1, 1]: constants, unlike a data set's own mean and deviation, tell nothing of it.

    >>> import torch
    >>> Centred()(torch.tensor([0.0, 0.5, 1.0]))
    tensor([-1.,  0.,  1.])
    """

    def forward(self, images: Tensor) -> Tensor:
        """Images of any shape, rescaled."""
        return 2 * images - 1


def mnist_cnn(activation: str = "relu", classes: int = 10) -> nn.Module:
    """The network for (N, 1, 28, 28) images that papers on private training share: 26,010 parameters.

    >>> sum(p.numel() for p in mnist_cnn().parameters())
    26010
    """
    return nn.Sequential(
        Centred(),
        nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
        activation_module(activation),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        activation_module(activation),
        nn.MaxPool2d(kernel_size=2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        activation_module(activation),
        nn.Linear(32, whole("classes", classes, least=2, most=MOST)),
    )


def cifar_cnn(activation: str = "tanh", width: int = 32, classes: int = 10) -> nn.Module:
    """Three pairs of 3x3 convolutions with `width`, 2 `width` and 4 `width` channels, for (N, 3, 32, 32) images.

    The default has 550,570 parameters, a width of 16 has 138,330.

    >>> [sum(p.numel() for p in cifar_cnn(width=width).parameters()) for width in (32, 16)]
    [550570, 138330]
    """
    channels = [whole("width", width, least=1, most=MOST) * factor for factor in (1, 2, 4)]
    layers: list[nn.Module] = []
    before = 3
    for after in channels:
        layers += [
            nn.Conv2d(before, after, kernel_size=3, padding=1),
            activation_module(activation),
            nn.Conv2d(after, after, kernel_size=3, padding=1),
            nn.MaxPool2d(kernel_size=2),
            activation_module(activation),
        ]
        before = after
    return nn.Sequential(
        Centred(),
        *layers,
        nn.Flatten(),
        nn.Linear(before * 4 * 4, before),
        activation_module(activation),
        nn.Linear(before, whole("classes", classes, least=2, most=MOST)),
    )


def digits_cnn(activation: str = "tanh", classes: int = 10) -> nn.Module:
    """A network of 6,090 parameters for (N, 1, 8, 8) images.

    >>> sum(p.numel() for p in digits_cnn().parameters())
    6090
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.MaxPool2d(kernel_size=2),
        activation_module(activation),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.MaxPool2d(kernel_size=2),
        activation_module(activation),
        nn.Flatten(),
        nn.Linear(128, whole("classes", classes, least=2, most=MOST)),
    )


def maps_cnn(shape: tuple[int, int, int], activation: str = "tanh", width: int = 16, classes: int = 10) -> nn.Module:
    """Two 3x3 convolutions of `width` and 2 `width` channels for maps of features, (N, *shape).

    >>> sum(p.numel() for p in maps_cnn((30, 7, 7)).parameters())
    11866
    """
    channels, height, wide = shape
    if min(height, wide) < 2:
        raise InvalidInput(f"maps of {height}x{wide} places are too small.", hint="use features of larger maps")
    first, second = whole("width", width, least=1, most=MOST), 2 * width
    return nn.Sequential(
        nn.Conv2d(channels, first, kernel_size=3, padding=1),
        nn.MaxPool2d(kernel_size=2),
        activation_module(activation),
        nn.Conv2d(first, second, kernel_size=3, padding=1),
        activation_module(activation),
        nn.Flatten(),
        nn.Linear(second * (height // 2) * (wide // 2), whole("classes", classes, least=2, most=MOST)),
    )
