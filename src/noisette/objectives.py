"""Objectives: what a model is trained for, as one loss for each example, ``objective(model, batch) -> losses (B,)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._pytree import Batch
from noisette._spec import what
from noisette.errors import InvalidInput

__all__ = ["Objective", "PerExample", "TokenCrossEntropy", "classification", "model_loss", "per_example"]

Objective = Callable[[nn.Module, Batch], Tensor]
"""From a model and a batch of B examples, one loss for each of them, (B,)."""


@dataclass(frozen=True)
class PerExample:
    """An objective for one example at a time: see `per_example`."""

    objective: Objective

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.objective(model, batch)


def per_example(objective: Objective) -> PerExample:
    """An objective that is shown one example at a time, as a batch of one, and so may return a single number.

    Take it where the loss of a batch is a mean that you cannot take apart: that of a model which computes its own loss.

    >>> lasso = per_example(lambda model, batch: (model(batch["x"]) - batch["y"]).abs().mean())
    """
    return PerExample(objective)


def _model_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    _check_dict(batch)
    loss: Tensor | None = getattr(model(**batch), "loss", None)
    if loss is None:
        raise InvalidInput(
            f"{type(model).__name__} gives no loss.", hint="does the batch have labels, under the name that it expects?"
        )
    return loss


model_loss = per_example(_model_loss)
"""For models that compute their own loss: ``model(**batch).loss``, of one example at a time."""


def classification(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy of ``model(**batch).logits`` (B, C) and ``batch["labels"]``: classes (B,), or 0 and 1 (B, C).

    With several labels an example, the loss is the mean over them of binary cross-entropies.
    """
    labels, logits = _labels(batch), _logits(model, batch)
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)
    return F.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class TokenCrossEntropy:
    """Cross-entropy over an example's own tokens; a label of -100 does not count.

    It reads ``model(**batch).logits`` (B, L, C) and ``batch["labels"]`` (B, L): for token classification and models
    from sequence to sequence, whose decoder starts from the labels, one place later, where the batch has nothing else
    for it. A causal language model, whose logits are of the token to come, has ``ahead=1``. `mean` is over the tokens
    that count; without it, losses are summed, and long examples weigh more.

    >>> causal = TokenCrossEntropy(ahead=1)
    """

    ahead: int = 0
    mean: bool = True

    def __call__(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        labels, logits = _labels(batch)[:, self.ahead :], _logits(model, _with_decoder(model, batch))
        logits = logits[:, : logits.shape[1] - self.ahead]
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=_IGNORED).sum(1)
        return losses / (labels != _IGNORED).sum(1).clamp(min=1) if self.mean else losses


_IGNORED = -100


def _with_decoder(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a decoder starts from, where a model of transformers has one: the labels, one place later."""
    later = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if later is None or {"decoder_input_ids", "decoder_inputs_embeds"} & batch.keys():
        return batch
    return {**batch, "decoder_input_ids": later(labels=batch["labels"])}


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The labels are ours: a model that sees them would compute a loss of its own."""
    outputs: Any = model(**{name: part for name, part in batch.items() if name != "labels"})
    logits: Tensor | None = getattr(outputs, "logits", None)
    if logits is None:
        raise InvalidInput(
            f"what {type(model).__name__} gives is {what(outputs)}, which has no logits.",
            hint="for a model that gives plain tensors write your own objective(model, batch), or take pairs "
            "(inputs, targets) and nn.CrossEntropyLoss()",
        )
    return logits


def _labels(batch: dict[str, Tensor]) -> Tensor:
    _check_dict(batch)
    if "labels" not in batch:
        raise InvalidInput("the batch has no labels.", hint='give them under the name "labels", as transformers do')
    return batch["labels"]


def _check_dict(batch: Any) -> None:
    if not isinstance(batch, Mapping):
        raise InvalidInput(
            f"the batch is {what(batch)}, and not a dict of what the model takes by name.",
            hint="give examples that are dicts; for pairs (inputs, targets) take a loss such as nn.CrossEntropyLoss()",
        )
