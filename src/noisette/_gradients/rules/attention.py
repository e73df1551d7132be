"""Attention of many heads, as torch's own layer has it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.grad_forms import GradForm, Slice, outer_product
from noisette._gradients.rules.base import Rule, Use
from noisette._gradients.rules.linear import summed

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Rule):
    """Queries (B, N, L, E), keys and values (B, N, S, E); N and L or S the other way round unless `batch_first`."""

    layers = (nn.MultiheadAttention,)

    def fits(self, layer: nn.Module) -> bool:
        """One width for all three, and nothing added to keys and values."""
        return (
            isinstance(layer, nn.MultiheadAttention)
            and layer._qkv_same_embed_dim
            and layer.bias_k is None
            and not layer.add_zero_attn
        )

    def run(
        self,
        layer: nn.MultiheadAttention,
        use: Use,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,  # noqa: ARG002 - torch takes it with a mask only, which says the same
    ) -> tuple[Tensor, Tensor | None]:
        """All examples at once; an example's queries meet its own keys only."""
        alone, heads = query.ndim == 3, layer.num_heads

        def batch_first(part: Tensor) -> Tensor:
            return part.unsqueeze(1) if alone else part if layer.batch_first else part.transpose(1, 2)

        q, k, v = self._projected(layer, use, *map(batch_first, (query, key, value)))
        count, many, length, width = q.shape
        q, k, v = (torch.unflatten(part.flatten(0, 1), 2, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        mask = _mask(q, k, attn_mask, key_padding_mask, count)
        dropout = layer.dropout if layer.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(2, 3) * (width // heads) ** -0.5
            weights = F.dropout((scores if mask is None else scores + mask).softmax(dim=3), dropout)
            made = weights @ v
        else:
            made = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        flat = made.transpose(1, 2).reshape(count, many, length, width)
        out = use.note(
            F.linear(flat, use["out_proj.weight"], use.get("out_proj.bias")),
            out_proj__weight=lambda g: outer_product(flat, g),
            out_proj__bias=summed,
        )
        out = out.squeeze(1) if alone else out if layer.batch_first else out.transpose(1, 2)
        if weights is None:
            return out, None
        weights = torch.unflatten(weights.mean(dim=1) if average_attn_weights else weights, 0, (count, many))
        return out, weights.squeeze(1) if alone else weights

    def _projected(
        self, layer: nn.MultiheadAttention, use: Use, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight, bias, width = use["in_proj_weight"], use.get("in_proj_bias"), layer.embed_dim
        if q.data_ptr() == k.data_ptr() == v.data_ptr() and q.shape == k.shape == v.shape:
            made = use.note(
                F.linear(q, weight, bias), in_proj_weight=lambda g: outer_product(q, g), in_proj_bias=summed
            )
            return made[..., :width], made[..., width : 2 * width], made[..., 2 * width :]
        found = []
        for i, part in enumerate((q, k, v)):
            rows = slice(i * width, (i + 1) * width)

            def of_weight(g: Tensor, part: Tensor = part, at: int = i) -> GradForm:
                return Slice(outer_product(part, g), at * width**2, width**2)

            def of_bias(g: Tensor, at: int = i) -> GradForm:
                return Slice(summed(g), at * width, width)

            made = F.linear(part, weight[rows], None if bias is None else bias[rows])
            found.append(use.note(made, in_proj_weight=of_weight, in_proj_bias=of_bias))
        return found[0], found[1], found[2]


def _mask(q: Tensor, k: Tensor, mask: Tensor | None, padding: Tensor | None, count: int) -> Tensor | None:
    """What is added to scores (B * N, H, L, S), of a mask (B, L, S) or (B, N * H, L, S) and a padding (B, [N,] S)."""
    _, heads, length, _ = q.shape
    found = None
    if mask is not None:
        shaped = mask.view(count, -1, *((1,) if mask.ndim == 3 else (heads,)), length, k.shape[2])
        found = _added(shaped, q).expand(-1, len(q) // count, -1, -1, -1).flatten(0, 1)
    if padding is not None:
        ignored = _added(padding.reshape(len(q), 1, 1, k.shape[2]), q)
        found = ignored if found is None else found + ignored
    return found


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -torch.inf)
