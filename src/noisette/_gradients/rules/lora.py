"""Adapters of low rank on a Linear layer, also that of transformers, as peft has them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.grad_forms import GradForm, at_least_float32, outer_product
from noisette._gradients.rules.base import Rule, Use, hooked, rule_of
from noisette._gradients.rules.linear import Linear, Transposed, summed
from noisette._gradients.state_guard import StrategyNotApplicable

__all__ = ["LoRA"]

_COMPANY = 16  # examples; not how many there are, by which last bits of each would differ


class LoRA(Rule):
    """x (B, ..., in) to (B, ..., out) by W x + b + s B A x.

    Where a few examples have more positions than the weight is wide, W + s B A is one weight: products with few columns
    take longer than their share of the work, forward and back.
    """

    layers = ("peft.tuners.lora.layer.Linear",)

    def fits(self, layer: nn.Module) -> bool:
        """One adapter as in the paper, in use, without dropout, of layers that do no more than their classes."""
        adapter = _adapter(layer)
        return adapter is not None and not any(map(hooked, _inner(layer, adapter)))

    def run(self, layer: Any, use: Use, x: Tensor) -> Tensor:
        """Both products at once, or one after the other."""
        name = _adapter(layer)
        if name is None:
            raise StrategyNotApplicable("the adapters in use are others than at the start")
        weight, bias, scale = use["base_layer.weight"], use.get("base_layer.bias"), layer.scaling[name]
        turned = _is(layer.base_layer, Transposed)
        weight = weight.T if turned else weight
        low, high = use[f"lora_A.{name}.weight"], use[f"lora_B.{name}.weight"]
        # what is added to a weight of few bits may be less than its last
        exact = weight.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(x.device.type)
        if exact and _COMPANY * x[0, ..., 0].numel() > min(weight.shape):
            out = F.linear(x, torch.addmm(weight, high, low, alpha=scale), bias)
        else:
            out = torch.add(F.linear(x, weight, bias), F.linear(F.linear(x, low), high), alpha=scale)

        def of_weight(g: Tensor) -> GradForm:
            return outer_product(g, x) if turned else outer_product(x, g)

        terms = {
            f"lora_A__{name}__weight": lambda g: outer_product(x, scale * (at_least_float32(g) @ high)),
            f"lora_B__{name}__weight": lambda g: outer_product(scale * (at_least_float32(x) @ low.T), g),
        }
        return use.note(out, base_layer__weight=of_weight, base_layer__bias=summed, **terms)


def _adapter(layer: Any) -> str | None:
    """The name of the only adapter of a layer, None where the rule does not say what the layer computes."""
    if layer.disable_adapters or layer.merged or len(layer.lora_A) != 1 or list(layer.lora_A) != layer.active_adapters:
        return None
    (name,) = layer.lora_A
    base, low, high, dropout = _inner(layer, name)
    plain = _is(base, Linear, Transposed) and _is(low, Linear) and _is(high, Linear) and type(dropout) is nn.Identity
    alike = plain and base.weight.dtype == low.weight.dtype == high.weight.dtype
    return name if alike and high.bias is None and name not in layer.lora_variant and "__" not in name else None


def _is(layer: nn.Module, *kinds: type[Rule]) -> bool:
    """Whether a layer computes what one of these rules says, if nobody has put another ``forward`` in its place."""
    return isinstance(rule_of(layer), kinds)


def _inner(layer: Any, name: str) -> tuple[Any, ...]:
    return layer.base_layer, layer.lora_A[name], layer.lora_B[name], layer.lora_dropout[name]
