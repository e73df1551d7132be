"""What is trained, from what the user gave: an ordinary loss, or an objective with one loss for each example."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from noisette._gradients.draws import AlikeDraws
from noisette._gradients.per_example_loss import Loss, for_one, is_shared, of_every_class
from noisette._pytree import Batch, rows, size, tensors
from noisette._spec import what
from noisette.errors import InvalidInput
from noisette.objectives import Objective, PerExample, model_loss

__all__ = ["ExampleTrace", "LossAdapter", "SupervisedLoss", "adapt_loss", "tensor_paths"]


_TOLERANCE = 1e-3
_ADD_UP = (
    "a model for detection gives a dict of losses when it is called with images and targets: add them up in "
    "noisette.objectives.per_example(objective), as sum(losses.values())"
)


@dataclass(frozen=True, eq=False)
class ExampleTrace:
    """One example of a batch: its loss, which autograd can follow, and all numbers (n,) that are known of it."""

    loss: Tensor
    numbers: Tensor


class LossAdapter(nn.Module):
    """A model and what it is trained for. Called with a batch of one, it gives the loss of that example, a scalar.

    A module, so that torch can put other parameters into the model for a call, whatever the objective does with it.
    Model and loss run `within` a block, which may change what functions of torch do.
    """

    def __init__(self, model: nn.Module, given: Any) -> None:
        super().__init__()
        self.model = model
        self._given = (given,)  # a loss that is a module is no part of the model
        self.within: AbstractContextManager[Any] = nullcontext()

    @property
    def given(self) -> Any:
        """The loss or objective itself."""
        return self._given[0]

    def with_state(self, state: Mapping[str, Tensor], batch: Batch, *, whole: bool = False, tie: bool = True) -> Any:
        """The same with parameters and buffers of the model from `state`; `all_of` a `whole` batch instead.

        A parameter that has two places may come under the first of them, unless `tie` is off.
        """
        if tie:
            first = dict[Tensor, str]()
            named = {name: first.setdefault(held, name) for name, held in tensor_paths(self.model).items()}
            state = {name: state[known] for name, known in named.items() if known in state}
        named_here = {f"model.{name}": value for name, value in state.items()}
        with self.within:
            # not tied by torch: it would fill a module that has two names twice, and leave it with what came first
            return functional_call(self, named_here, (batch, whole), tie_weights=False)

    def forward(self, batch: Batch, whole: bool = False) -> Any:
        """The loss of a batch of one; what is not reduced is summed."""
        return self.all_of(batch) if whole else self.loss(self.all_of(batch), batch)

    def all_of(self, batch: Batch) -> Any:
        """What the user's function makes of a batch: losses."""
        return self.given(self.model, batch)

    def loss(self, found: Any, batch: Batch) -> Tensor:  # noqa: ARG002 - an ordinary loss has targets
        """The loss of a batch of one, from what `all_of` found."""
        return _total(found, "objective")

    def seen(self, state: Mapping[str, Tensor], batch: Batch) -> list[ExampleTrace]:
        """Every example of a batch that the model sees as a whole, as far as the objective allows that."""
        losses, count = self.with_state(state, batch, whole=True), size(batch)
        if not isinstance(losses, Tensor) or losses.shape != (count,):
            found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidInput(
                f"the objective gives {found} for a batch of {count}, and not one loss for each example.",
                hint=_ADD_UP
                if isinstance(losses, Mapping)
                else "leave the mean over the batch out; for a model that computes its own loss take "
                "noisette.objectives.model_loss, or per_example(objective)",
            )
        return [self._seen(loss) for loss in losses]

    def _seen(self, loss: Tensor, *others: Tensor) -> ExampleTrace:
        """All numbers in the precision of the model, whatever that of targets is."""
        dtype = next(self.model.parameters()).dtype
        return ExampleTrace(loss, torch.cat([part.detach().reshape(-1).to(dtype) for part in (loss, *others)]))


class PerExampleLoss(LossAdapter):
    """An objective that was said to see one example at a time."""

    def seen(self, state: Mapping[str, Tensor], batch: Batch) -> list[ExampleTrace]:
        """Every example, alone."""
        losses = self._each(state, batch)
        if self.given is model_loss:  # written for batches, so that what it makes of one can be compared
            shared = self._shared(self.with_state(state, batch), torch.stack(losses))
            with AlikeDraws():  # random numbers, as those of NEFTune, are others in a batch
                shared = shared or self._shared(self.with_state(state, batch), torch.stack(self._each(state, batch)))
            if not shared:
                raise InvalidInput(
                    f"the loss of {type(self.model).__name__} over a batch is not made of the losses of its examples.",
                    hint="a contrastive loss or a balance of experts cannot be had of one example, which is all that "
                    "is shown here; give an objective(model, batch) with one loss for each",
                )
        return [self._seen(loss) for loss in losses]

    def _each(self, state: Mapping[str, Tensor], batch: Batch) -> list[Tensor]:
        return [self.with_state(state, rows(batch, slice(i, i + 1))) for i in range(size(batch))]

    def _shared(self, whole: Tensor, alone: Tensor) -> bool:
        """Whether the loss of made-up examples is the mean or the sum of their losses alone."""
        near = (torch.allclose(whole, one, rtol=_TOLERANCE, atol=_TOLERANCE) for one in (alone.mean(), alone.sum()))
        return not whole.isfinite() or not alone.isfinite().all() or any(near)


class SupervisedLoss(LossAdapter):
    """An ordinary ``loss(outputs, targets)`` over a batch ``(inputs, targets)``, as torch has them."""

    def loss(self, found: Any, batch: Batch) -> Tensor:
        """The loss of a batch of one, from its outputs (1, ...)."""
        with self.within:
            return _total(self.given(found, batch[1]), "loss")

    def all_of(self, batch: Batch) -> Any:
        """The outputs of the model."""
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise InvalidInput(
                "a loss needs batches of (inputs, targets), and these are something else.",
                hint="give a pair, or an objective(model, batch), whose first parameter is called model",
            )
        inputs = batch[0]
        if isinstance(inputs, Mapping):
            return self.model(**inputs)
        return self.model(*inputs) if isinstance(inputs, list | tuple) else self.model(inputs)

    def seen(self, state: Mapping[str, Tensor], batch: Batch) -> list[ExampleTrace]:
        """Every example, with its row of the outputs; the loss sees one row at a time."""
        outputs, count = self.with_state(state, batch, whole=True), size(batch)
        parts = tensors(outputs)
        if not parts or any(part.ndim == 0 or len(part) != count for part in parts):
            raise InvalidInput(
                f"the output of {type(self.model).__name__} has no row for each example.",
                hint="return tensors whose first dimension is that of the batch, or give an objective(model, batch)",
            )
        with self.within:
            shared = count == 1 or all(
                is_shared(self.given, *made)
                for made in ((outputs, batch[1]), of_every_class(outputs, batch[1]))
                if made is not None
            )
        if not shared:
            raise InvalidInput(
                "the loss of a batch is not the mean or the sum of the losses of its examples.",
                hint=_one_too_many(outputs, batch[1])
                or "a contrastive loss has nothing to contrast in one example, which is all that it is shown here; "
                "class weights belong into nn.CrossEntropyLoss(weight=...)",
            )
        found = []
        for i in range(count):
            one = slice(i, i + 1)
            loss = self.loss(rows(outputs, one), rows(batch, one))
            found.append(self._seen(loss, *(part[i] for part in parts)))
        return found


def adapt_loss(model: nn.Module, given: Loss | Objective) -> LossAdapter:
    """The aim that a user means by an ordinary loss or by an objective, whose first parameter is called ``model``.

    >>> type(adapt_loss(nn.Linear(2, 1), nn.MSELoss())).__name__
    'SupervisedLoss'
    >>> type(adapt_loss(nn.Linear(2, 1), lambda model, batch: model(batch).square().sum(1))).__name__
    'LossAdapter'
    """
    if isinstance(given, PerExample):
        return PerExampleLoss(model, given)
    return LossAdapter(model, given) if _is_objective(given) else SupervisedLoss(model, for_one(given))


def _total(losses: Any, given_by: str) -> Tensor:
    """What a user's function gives, summed."""
    if not isinstance(losses, Tensor):
        raise InvalidInput(
            f"what the {given_by} gives is {what(losses)}, not a Tensor.",
            hint=_ADD_UP if isinstance(losses, Mapping) else "return the loss alone, without item() or float()",
        )
    return losses.sum()


def _one_too_many(outputs: Any, targets: Any) -> str:
    """A hint where outputs and targets differ by dimensions of size 1, so that torch compares each with all."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.shape == targets.shape:
        return ""
    (_, *ours), (_, *theirs) = outputs.shape, targets.shape
    if [size for size in ours if size > 1] != [size for size in theirs if size > 1]:
        return ""
    return (
        f"an output has the shape {tuple(ours)} and a target {tuple(theirs)}, so that torch compares each with all: "
        "give them one shape, as targets.view_as(outputs) does"
    )


def tensor_paths(model: nn.Module) -> dict[str, Tensor]:
    """Where parameters and buffers are held: tied ones have several places, a module that has two names counts once.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> list(tensor_paths(nn.ModuleDict({"one": layer, "same": layer})))
    ['one.weight']
    """
    return {
        f"{prefix}.{name}" if prefix else name: held
        for prefix, module in model.named_modules()
        for name, held in (*module._parameters.items(), *module._buffers.items())
        if held is not None
    }


def _is_objective(given: Callable[..., Any]) -> bool:
    if isinstance(given, nn.Module):
        return False
    try:
        first = next(iter(inspect.signature(given).parameters.values()), None)
    except (TypeError, ValueError):  # some functions of C tell nothing
        return False
    return first is not None and first.name == "model"
