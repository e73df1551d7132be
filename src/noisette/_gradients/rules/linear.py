"""Linear layers, on vectors and on sequences; also that of transformers, whose weight is transposed."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from noisette._gradients.grad_forms import DenseRows, outer_product
from noisette._gradients.rules.base import Rule, Use

__all__ = ["Linear", "Transposed", "summed"]


def summed(g: Tensor) -> DenseRows:
    """The gradient of a bias: g (B, ..., out) summed over positions."""
    return DenseRows(g if g.ndim == 2 else g.flatten(1, -2).sum(dim=1))


class Linear(Rule):
    """x (B, ..., in) to (B, ..., out)."""

    layers = (nn.Linear, NonDynamicallyQuantizableLinear)

    def run(self, layer: nn.Linear, use: Use, x: Tensor) -> Tensor:  # noqa: ARG002
        """One product for all examples."""
        out = F.linear(x, use["weight"], use.get("bias"))
        return use.note(out, weight=lambda g: outer_product(x, g), bias=summed)


class Transposed(Rule):
    """The same with a weight (in, out), which transformers calls Conv1D."""

    layers = ("transformers.pytorch_utils.Conv1D",)

    def run(self, layer: nn.Module, use: Use, x: Tensor) -> Tensor:  # noqa: ARG002
        """One product for all examples."""
        out = F.linear(x, use["weight"].T, use.get("bias"))
        return use.note(out, weight=lambda g: outer_product(g, x), bias=summed)
