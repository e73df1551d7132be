"""Objectives say what a batch or a model lacks; what they compute is tested with the gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisette.errors import InvalidInput
from noisette.objectives import TokenCrossEntropy, classification, model_loss
from tests.support.helpers import refused


class Named(nn.Linear):
    """A plain model that is called by names."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x)


MODEL, X, LABELS = Named(4, 2), torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.long)


@pytest.mark.parametrize("objective", [classification, TokenCrossEntropy()], ids=["classification", "Tokens"])
def test_what_lacks_is_told(objective: Any) -> None:
    with refused(InvalidInput, match=r"of type tuple, and not a dict.*\n\n.*nn.CrossEntropyLoss\(\)"):
        objective(MODEL, (X, LABELS))
    with refused(InvalidInput, match=r'has no labels.*\n\n.*under the name "labels"'):
        objective(MODEL, {"x": X})
    with refused(InvalidInput, match=r"what Named gives is of type Tensor, which has no logits"):
        objective(MODEL, {"x": X, "labels": LABELS})


def test_an_own_loss_that_is_none() -> None:
    with refused(InvalidInput, match="of type tuple, and not a dict"):
        model_loss(MODEL, (X, LABELS))
    with refused(InvalidInput, match="Named gives no loss"):
        model_loss(MODEL, {"x": X, "labels": LABELS})
