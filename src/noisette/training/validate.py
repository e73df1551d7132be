"""What would be refused or slow about a model, before any private example is used, and what to do about it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisette._gradients import (
    MAX_NORM_REASON,
    UNHOOK,
    Loss,
    PerExampleGradients,
    batch_statistics,
    hooked,
    max_norm_embeddings,
    trained_parameters,
)
from noisette._pytree import Batch, size, tensors
from noisette.errors import InvalidInput, NoisetteError
from noisette.objectives import Objective
from noisette.training._arguments import check_loss
from noisette.training.closing import refuse_closed_over
from noisette.training.make_private import to_examples

__all__ = ["Finding", "Report", "check", "in_place", "mixing"]

_RULE = "give the layer a rule (docs/guides/add-a-layer-rule.md), or build it of layers of torch"
_MEND = "noisette.fix(model)"


@dataclass(frozen=True)
class Finding:
    """One thing about a layer: `verdict` is "refused" or "slow", `fix` says what to do."""

    layer: str
    verdict: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Report:
    """What `check` found. `path` is how gradients would be computed; None where no data told."""

    findings: tuple[Finding, ...]
    parameters: int
    path: str | None

    @property
    def passed(self) -> bool:
        """Whether nothing would be refused."""
        return all(finding.verdict != "refused" for finding in self.findings)

    def __str__(self) -> str:
        if not self.findings:
            return f"nothing is refused or slow ({self.parameters:,} trained parameters)"
        return "\n".join(f"{one.verdict}: {one.layer}: {one.reason}; {one.fix}" for one in self.findings)


def check(
    model: nn.Module, data: Any = None, *, goal: Loss | Objective | None = None, collate_fn: Any = None
) -> Report:
    """What `make_private` would refuse about a model, or could compute only slowly, layer by layer, with the fix.

    Layers are judged as in training, also where the whole model is in evaluation mode; a layer that alone is in it
    stays as it is. With `data`, anything that `make_private` takes, the model is tried on made-up examples of its
    shapes: that shows what mixes examples, and which layers vmap cannot run. Without a `goal`, its outputs are tried.

    >>> print(check(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))))
    refused: BatchNorm1d '1': it mixes the examples of a batch; noisette.fix(model)
    >>> check(nn.Linear(4, 2), (torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))).path
    'layers'
    """
    found = [
        Finding(_named(name, layer), "refused", "it mixes the examples of a batch", _MEND)
        for name, layer in mixing(model)
    ]
    changes = "it changes the weights that its examples look up"
    found += [
        Finding(_named(name, layer), "refused", changes, MAX_NORM_REASON) for name, layer in max_norm_embeddings(model)
    ]
    passed_by = "it has a hook on its gradient, which private gradients do not pass through"
    found += [Finding(_named(name, parameter), "refused", passed_by, UNHOOK) for name, parameter in hooked(model)]
    try:
        parameters = trained_parameters(model)
    except InvalidInput as error:
        return Report((*found, _refused(model, error)), 0, None)
    path = None
    if data is not None and not found:
        path, more = _tried(model, data, goal, collate_fn)
        found += more
    if path != "layers":  # with rules they do no harm, or it would have shown
        found += [
            Finding(_named(name, layer), "slow", "it may change in place what a layer before it has seen", _MEND)
            for name, layer in in_place(model)
        ]
    return Report(tuple(found), parameters, path)


def mixing(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that mix examples in training; those that alone are in evaluation mode go on as they are.

    >>> [name for name, _ in mixing(nn.Sequential(nn.BatchNorm1d(2)).eval())]
    ['0']
    """
    resting = _resting(model)
    for name, layer in batch_statistics(model):
        if layer.training or resting or getattr(layer, "running_mean", None) is None:
            yield name, layer


def in_place(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that change their input in place, as activations may.

    >>> [name for name, _ in in_place(nn.Sequential(nn.ReLU(inplace=True), nn.ReLU()))]
    ['0']
    """
    return ((name, layer) for name, layer in model.named_modules() if getattr(layer, "inplace", False) is True)


def _tried(model: nn.Module, data: Any, goal: Any, collate_fn: Any) -> tuple[str | None, list[Finding]]:
    resting = _resting(model)
    if resting:
        model.train()
    try:
        dtype = torch.float64 if next(model.parameters()).dtype == torch.float64 else torch.get_default_dtype()
        examples = to_examples(data, collate_fn, 0, 1, 1.0, None, dtype)
        batch = examples.spec_batch()
        if goal is None:
            goal, batch = _squares, _pair(batch)
        check_loss(goal)
        refuse_closed_over(model, goal, len(examples))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is slow is in the report
            trial = PerExampleGradients(model, goal).trial(batch)
    except NoisetteError as error:
        return None, [_refused(model, error)]
    except Exception as error:  # noqa: BLE001 - whatever a model raises on examples that do not fit it
        told = InvalidInput(
            f"it cannot be run on made-up examples of these shapes ({type(error).__name__}).",
            hint="give the data that it is made for, and a goal=objective(model, batch) that calls it",
        )
        return None, [_refused(model, told)]
    finally:
        if resting:
            model.eval()
    return trial.path, [Finding(name, "slow", reason, _RULE) for name, reason in trial.obstacles.items()]


def _resting(model: nn.Module) -> bool:
    """Whether the whole model is in evaluation mode, as one that was just loaded is."""
    return not any(layer.training for layer in model.modules())


def _pair(batch: Batch) -> Batch:
    """A batch as inputs and targets, which do not matter here."""
    if isinstance(batch, Mapping):
        batch = {name: part for name, part in batch.items() if name not in ("label", "labels", "label_ids")}
    elif isinstance(batch, list | tuple) and len(batch) == 2:
        batch = batch[0]
    return batch, torch.zeros(size(batch))


def _squares(outputs: Any, _: Tensor) -> Tensor:
    """A loss that depends on every number of the outputs (B, ...): one for each example."""
    parts = [part for part in tensors(outputs) if part.is_floating_point()]
    return torch.stack([part.reshape(len(part), -1).square().mean(1) for part in parts]).sum(0)


def _named(name: str, layer: object) -> str:
    return f"{type(layer).__name__} {name!r}" if name else type(layer).__name__


def _refused(model: nn.Module, error: NoisetteError) -> Finding:
    return Finding(type(model).__name__, "refused", error.sentence.rstrip("."), error.hint)
