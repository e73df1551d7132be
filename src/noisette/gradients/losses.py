"""Losses whose value for one example is not its share in a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette.gradients.ways import Loss

__all__ = ["for_one"]


def for_one(loss: Loss) -> Loss:
    """`loss` as it has to be asked for one example alone.

    Where classes have weights, torch divides a mean by the weights of the targets, not by their number. Of a batch of
    one that leaves nothing of them, so that here the mean is over the example's own targets that are not ignored.

    >>> heavy = for_one(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0])))
    >>> heavy(torch.zeros(1, 2), torch.tensor([1])) / heavy(torch.zeros(1, 2), torch.tensor([0]))
    tensor(3.)
    """
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) and loss.weight is not None and loss.reduction == "mean":
        return _Weighted(loss)
    return loss


class _Weighted(nn.Module):
    """The mean of weighted losses over the targets that are not ignored."""

    def __init__(self, loss: nn.CrossEntropyLoss | nn.NLLLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss, ignored = self.loss, self.loss.ignore_index
        if targets.is_floating_point():  # probabilities of classes, whose mean is over their number in torch as well
            found: Tensor = loss(outputs, targets)
            return found
        if isinstance(loss, nn.CrossEntropyLoss):
            smooth = loss.label_smoothing
            total = F.cross_entropy(outputs, targets, loss.weight, None, ignored, None, "sum", smooth)
        else:
            total = F.nll_loss(outputs, targets, loss.weight, None, ignored, None, "sum")
        return total / torch.clamp((targets != ignored).sum(), min=1)
