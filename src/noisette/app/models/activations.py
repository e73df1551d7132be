"""Activation functions by name. Bounded ones train better with clipped gradients."""

from __future__ import annotations

from torch import nn

from noisette.errors import InvalidInput

__all__ = ["MOST", "activation_module"]

MOST = 10**8
"""The most that a layer may have of anything: products of a few of these are still integers to torch."""

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def activation_module(name: str) -> nn.Module:
    """A fresh module for the activation called `name`.

    >>> activation_module("tanh")
    Tanh()
    """
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise InvalidInput(f"there is no activation {name!r}.", hint=f"use one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]()
