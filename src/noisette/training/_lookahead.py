"""Gradients a little ahead of where the parameters are, for denoisers that ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["ahead", "flat"]


def flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    """A copy of all parameters end to end, (dim,)."""
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@contextmanager
def ahead(parameters: Sequence[nn.Parameter], previous: Tensor | None, factor: float) -> Iterator[None]:
    """Inside, the parameters stand at theta + factor * (theta - previous); afterwards at theta again, bit by bit.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> theta = layer.weight.item()
    >>> with ahead([layer.weight], torch.tensor([theta - 1]), 0.5):
    ...     round(layer.weight.item() - theta, 4)
    0.5
    """
    if previous is None or factor == 0:
        yield
        return
    here = [parameter.detach().clone() for parameter in parameters]
    start = 0
    for parameter in parameters:
        before = previous[start : start + parameter.numel()].view_as(parameter)
        parameter.data.add_(parameter.data - before, alpha=factor)
        start += parameter.numel()
    try:
        yield
    finally:
        for parameter, value in zip(parameters, here, strict=True):
            parameter.data.copy_(value)
