"""Tables of vectors."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.lookup import EmbeddingRows
from noisette._gradients.rules.base import Rule, Use

__all__ = ["Embedding"]


class Embedding(Rule):
    """Indices (B, ...) to vectors (B, ..., width). What `padding_idx` names gets no gradient."""

    layers = (nn.Embedding,)

    def fits(self, layer: nn.Module) -> bool:
        """A `max_norm` changes the table in every call, and `scale_grad_by_freq` the gradients."""
        return isinstance(layer, nn.Embedding) and layer.max_norm is None and not layer.scale_grad_by_freq

    def run(self, layer: nn.Embedding, use: Use, index: Tensor) -> Tensor:
        """All vectors at once."""
        out = F.embedding(index, use["weight"])
        return use.note(out, weight=lambda g: EmbeddingRows(index, g, layer.num_embeddings, layer.padding_idx))
