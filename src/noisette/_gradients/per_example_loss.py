"""Losses whose value for one example is not its share in a batch: made right, or found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.rules.base import hooked
from noisette._pytree import Batch, change, rows, tensors

__all__ = ["Loss", "for_one", "is_shared", "of_every_class"]

Loss = Callable[[Any, Any], Tensor]
"""An ordinary loss of torch: of outputs (B, ...) and targets (B, ...), a mean, a sum, or one number for each."""

_TOLERANCE = 1e-3
_CLASSES = 64


def for_one(loss: Loss) -> Loss:
    """`loss` as it has to be asked for one example alone.

    Where classes have weights, torch divides a mean by the weights of the targets, not by their number. Of a batch of
    one that leaves nothing of them, so that here the mean is over the example's own targets that are not ignored.

    >>> heavy = for_one(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0])))
    >>> heavy(torch.zeros(1, 2), torch.tensor([1])) / heavy(torch.zeros(1, 2), torch.tensor([0]))
    tensor(3.)
    """
    if not isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or loss.weight is None or loss.reduction != "mean":
        return loss
    theirs = type(loss).forward in (nn.CrossEntropyLoss.forward, nn.NLLLoss.forward)  # a subclass may have its own
    return _Weighted(loss) if theirs and not hooked(loss) else loss


def is_shared(loss: Loss, outputs: Any, targets: Batch) -> bool:
    """Whether a loss is, up to one factor, the sum of its values for each of the examples alone.

    `outputs` and `targets` (B, ...) are of made-up examples. Compared are the derivatives at the outputs: a mean, a sum
    and no reduction pass; a contrastive loss does not, nor a mean by weights that are gone in a batch of one.

    >>> made = torch.randn(4, 3)
    >>> is_shared(nn.CrossEntropyLoss(), made, torch.tensor([0, 1, 0, 1]))
    True
    >>> is_shared(lambda a, b: F.cross_entropy(a @ a.T, torch.arange(len(a))), made, torch.zeros(4))
    False
    """
    made = change(outputs, lambda part: part.detach().clone().requires_grad_(part.is_floating_point()))
    parts = [part for part in tensors(made) if part.requires_grad]
    ones = [slice(i, i + 1) for i in range(len(parts[0]))] if parts else []
    try:
        apart = torch.stack([loss(rows(made, one), rows(targets, one)).sum() for one in ones]).sum()
    except Exception:  # noqa: BLE001 - wrong for all, which shows where it is used
        return True
    try:
        whole = loss(made, targets).sum()
    except Exception:  # noqa: BLE001 - written for one example; torch's own are not, and take one of another shape
        return not _of_torch(loss)
    together, alone = (_derivatives(value, parts) for value in (whole, apart))
    finite = together.isfinite().all(1) & alone.isfinite().all(1)  # rows: a mean over nothing is no number
    together, alone = together[finite], alone[finite]
    length = (alone * alone).sum()
    factor = float((together * alone).sum() / length) if length > 0 else 0.0
    size = float(together.abs().max()) if together.numel() else 0.0
    return torch.allclose(together, factor * alone, rtol=0.0, atol=_TOLERANCE * size) and (size == 0 or factor > 0)


def of_every_class(outputs: Any, targets: Any) -> tuple[Tensor, Tensor] | None:
    """Made-up outputs (n, C) and one label for each class, or for 64 of them, where targets may be labels of C classes.

    Made-up examples have two labels, and a loss may give the others another weight.

    >>> of_every_class(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))[1]
    tensor([0, 1, 2])
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.ndim != 2 or targets.ndim != 1:
        return None
    classes = outputs.shape[1]
    if targets.dtype != torch.int64 or classes <= 2:
        return None
    public = torch.Generator().manual_seed(0)
    labels = torch.linspace(0, classes - 1, min(classes, _CLASSES)).round().long()
    made = torch.rand((len(labels), classes), generator=public, dtype=torch.float64)
    dtype = torch.promote_types(outputs.dtype, torch.float32)  # few bits would show as a difference
    return made.to(outputs.device, dtype), labels.to(targets.device)


def _of_torch(loss: Loss) -> bool:
    place: str = getattr(type(loss) if isinstance(loss, nn.Module) else loss, "__module__", "")
    return place.startswith("torch.")


def _derivatives(value: Tensor, parts: list[Tensor]) -> Tensor:
    """Derivatives of `value` at tensors (B, ...), as rows (B, n)."""
    none: list[Tensor | None] = [None] * len(parts)
    found = none if value.grad_fn is None else torch.autograd.grad(value, parts, allow_unused=True)
    filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parts, found, strict=True)]
    return torch.cat([part.reshape(len(part), -1) for part in filled], dim=1).double()


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
