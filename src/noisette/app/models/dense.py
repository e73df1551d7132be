"""Models without structure: softmax regression and multi-layer perceptrons, for rows or flattened images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from noisette._spec import entries, whole
from noisette.app.models.activations import MOST, activation_module
from noisette.errors import InvalidInput

__all__ = ["linear", "mlp"]


def linear(inputs: int, classes: int = 10, bias: bool = True) -> nn.Module:
    """Softmax regression on `inputs` numbers: (N, ...) to logits (N, classes); linear regression with 1 class.

    The bias is one more input, of 1. Where the others have length one together, it has half of each gradient's square:
    where classes are about equally frequent, clipped gradients tell more without it.

    >>> linear(64)
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    if not isinstance(bias, bool):
        raise InvalidInput(f"bias is {bias!r}.", hint="write true or false")
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(
            whole("inputs", inputs, least=1, most=MOST), whole("classes", classes, least=1, most=MOST), bias=bias
        ),
    )


def mlp(inputs: int, hidden: Sequence[int] = (64,), classes: int = 10, activation: str = "tanh") -> nn.Module:
    """Fully connected layers of the sizes in `hidden`, with an activation after each: (N, ...) to (N, classes).

    >>> sum(p.numel() for p in mlp(64, hidden=(32, 16)).parameters())
    2778
    """
    sizes = [whole("hidden", size, least=1, most=MOST) for size in entries("hidden", hidden)]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise([whole("inputs", inputs, least=1, most=MOST), *sizes]):
        layers += [nn.Linear(before, after), activation_module(activation)]
    return nn.Sequential(*layers, nn.Linear((sizes or [inputs])[-1], whole("classes", classes, least=1, most=MOST)))
