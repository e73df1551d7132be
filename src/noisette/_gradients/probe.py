"""Is the model what it looks like, one example at a time? Made-up examples tell, before any real one is used.

Examples are isolated by construction: every way of computing gradients shows the model one example. A model that does
something else with a batch would then be trained as something that nobody wrote, so it is refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients.advancing import refuse_advancing
from noisette._gradients.constant import refuse_constant
from noisette._gradients.doubled import coarsest, doubled
from noisette._gradients.flat_params import Layout
from noisette._gradients.function_overrides import FunctionOverrides
from noisette._gradients.loss_adapter import ExampleTrace, LossAdapter, SupervisedLoss
from noisette._gradients.state_guard import masking
from noisette._gradients.strategies import copies_of, fill, without_checkpoints
from noisette._gradients.waiting import doing
from noisette._pytree import Batch, change, rows, size
from noisette.errors import InvalidInput, NoisetteError

if TYPE_CHECKING:
    from noisette._gradients.layer_strategy import Layers

__all__ = [
    "MAX_NORM_REASON",
    "IsolationProbe",
    "batch_statistics",
    "confirmed",
    "dropout_disabled",
    "isolated_rng",
    "max_norm_embeddings",
    "reject_batch_statistics",
    "synthetic_batches",
]

_EXAMPLES = 4
_ATTEMPTS = 3
_PIECE = 1 << 16  # numbers that are compared at a time: they stay in the cache
_SMALL = 0.1  # gradients below it are compared as if they were that large: a fitted model leaves rounding errors only
_HINT = (
    "replace what computes across the batch (BatchNorm by GroupNorm), and draw random numbers with torch alone, so "
    "that every example stays by itself"
)
_COMPARED = (
    "is it the objective that compares examples, as a contrastive loss does? one example, which is all that is shown "
    "here, has nothing to be compared with, unless it brings that; else in the model"
)
MAX_NORM_REASON = "leave max_norm out, and shorten the rows of its weight in your own loop, after a step"
_ALONE = threading.RLock()  # torch's generators and what is switched off meanwhile are those of the whole process


def reject_batch_statistics(model: nn.Module) -> None:
    """Raise InvalidInput where a layer of the BatchNorm family would use or gather statistics of the batch.

    An Embedding with ``max_norm`` is one of those that gather: it shortens the rows that it looks up, in their place.

    >>> reject_batch_statistics(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)))
    """
    for name, module in batch_statistics(model):
        if module.training or not _has_statistics(module):
            raise InvalidInput(
                f"{type(module).__name__} at {name or 'the top'!r} mixes the examples of a batch.",
                hint="replace it by GroupNorm, which noisette.fix(model) does for all of them",
            )
    for name, module in max_norm_embeddings(model):
        raise InvalidInput(
            f"{type(module).__name__} at {name or 'the top'!r} changes the weights that its examples look up.",
            hint=MAX_NORM_REASON,
        )


def batch_statistics(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that use or gather statistics of the batch when they are trained, by name.

    >>> [name for name, _ in batch_statistics(nn.Sequential(nn.BatchNorm1d(2), nn.InstanceNorm1d(2)))]
    ['0']
    """
    for name, module in model.named_modules():
        gathers = isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats
        if gathers or isinstance(module, nn.modules.batchnorm._BatchNorm):
            yield name, module


def max_norm_embeddings(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that shorten rows of their weights wherever an example looks one up, by name.

    >>> [name for name, _ in max_norm_embeddings(nn.Sequential(nn.Embedding(2, 2, max_norm=1.0), nn.Linear(2, 2)))]
    ['0']
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            yield name, module


def _has_statistics(module: nn.Module) -> bool:
    """Whether a layer that is not in training has anything but the batch to go by."""
    return getattr(module, "running_mean", None) is not None or not isinstance(module, nn.modules.batchnorm._BatchNorm)


def synthetic_batches(batch: Batch) -> Iterator[Batch]:
    """Batches of four examples of the same shapes and types: private ones must not decide what is done with a model.

    Whole numbers may be labels, tokens, lengths or a mask: in the first they are 0 and 1, each example's own beginning
    with a 1 where it has several; then all are 1, for lengths; then all are 0, for labels of one class.

    >>> x, y = next(synthetic_batches((torch.empty(0, 3), torch.empty(0, dtype=torch.long))))
    >>> x.shape, y
    (torch.Size([4, 3]), tensor([0, 1, 0, 1]))
    """
    public = torch.Generator().manual_seed(0)

    def mixed(part: Tensor) -> Tensor:
        shape = (_EXAMPLES, *part.shape[1:])
        if part.is_floating_point() or part.is_complex():
            return torch.rand(shape, generator=public, dtype=torch.float64).to(part.device, part.dtype)
        if part.ndim == 1:
            return (torch.arange(_EXAMPLES) % 2).to(part.device, part.dtype)
        made = torch.randint(2, shape, generator=public)
        made.view(_EXAMPLES, -1)[:, :1] = 1
        return made.to(part.device, part.dtype)

    first = change(batch, mixed)
    yield first
    for number in (1, 0):
        yield change(first, partial(_all, number=number))


def _all(part: Tensor, number: int) -> Tensor:
    return part if part.is_floating_point() else torch.full_like(part, number)


class IsolationProbe:
    """What some examples give in a batch, alone, and among copies of themselves; raises where that differs.

    Copies have the shapes of the batch, hence its rounding errors and, from the same seed, its random draws: there even
    a faint influence shows. Alone, what depends on the size of the batch shows too, unless the model is random. What
    differs is rounding where nothing differs in double precision.
    """

    def __init__(self, aim: LossAdapter, layout: Layout, batch: Batch) -> None:
        self._aim, self._layout, self._batch = aim, layout, batch
        self._double: IsolationProbe | None = None
        count = size(batch)
        self._dtype = reduce(torch.promote_types, (p.dtype for p in layout.parameters))
        self._everyone = everyone = self._run(batch)
        refuse_advancing(aim, change(rows(batch, slice(0, 1)), Tensor.clone))
        self._coarsest = coarsest(aim.model, *(one.loss for one in everyone.seen))
        self._size = _largest(torch.cat([one.numbers for one in everyone.seen]))  # what cancels leaves errors of terms
        self._steepest = 0.0
        random = self._is_random()
        for i in range(count):
            doing(f"example {i + 1} of {count} alone and in a batch")
            together = self._row(everyone, i)
            among_copies = self._row(self._run(rows(batch, [i] * count)), i)
            isolated = self._agree(together, among_copies, power=0.75)
            if isolated and not random:
                isolated = self._agree(together, self._row(self._run(rows(batch, [i])), 0), power=0.5)
            if not isolated and not self._rounds():
                raise InvalidInput(
                    f"an example's gradient in a batch differs from its gradient alone in {type(aim.model).__name__}.",
                    hint=masking(aim.model) or (_HINT if isinstance(aim, SupervisedLoss) else f"{_COMPARED} {_HINT}"),
                )
            self._steepest = max(self._steepest, _largest(together[1]))
        refuse_constant(aim, batch, self._steepest)

    def agrees(self, way: Layers) -> bool:
        """Does this way give the examples the same gradients? One of them is held at a time: they may be large."""
        doing("a rule for each layer")
        try:
            _seed(self._layout.parameters[0].device)
            terms = way.terms(change(self._batch, Tensor.clone))
            if all(self._is_of(i, way.row(terms, i)) for i in range(size(self._batch))):
                return True
        except NoisetteError:
            raise
        except Exception:  # noqa: BLE001 - the model has run before, so it is the way that does not fit
            return False
        return self._double is not None and self._double.agrees(way.like(self._double._aim, self._double._layout))

    def _rounds(self) -> bool:
        """Whether in double precision no example has a say in another one's gradient; False where that cannot run."""
        if self._coarsest != torch.float64 and self._double is None:
            with suppress(Exception):  # whatever a model raises that was written for another type
                aim, batch = doubled(self._aim, self._batch)
                self._double = IsolationProbe(aim, Layout(aim.model), batch)
        return self._double is not None

    def _is_of(self, i: int, row: Tensor) -> bool:
        """Whether a row is the gradient of example `i` in the batch."""
        gradient = self._row(self._everyone, i)[1]
        return self._near(gradient, row.to(gradient), max(self._steepest, _SMALL), power=0.5)

    def _is_random(self) -> bool:
        again = self._run(self._batch, seed=1).seen
        return not all(
            self._near(one.numbers, other.numbers, size=0.0, power=1.0)
            for one, other in zip(self._everyone.seen, again, strict=True)
        )

    def _run(self, batch: Batch, seed: int = 0) -> _Run:
        _seed(self._layout.parameters[0].device, seed)
        state = copies_of(self._aim.model)  # the model may write to what it is given
        return _Run(self._aim.seen(state, change(batch, Tensor.clone)), [state[name] for name in self._layout.names])

    def _row(self, run: _Run, i: int) -> tuple[Tensor, Tensor]:
        """All numbers known of example `i` of a run, and its gradient."""
        one, gradient = run.seen[i], self._layout.parameters[0].new_empty(self._layout.dim, dtype=self._dtype)
        if not one.loss.requires_grad:
            raise InvalidInput(
                "the loss does not depend on any trained parameter.",
                hint="leave detach(), no_grad() and numpy out of the model and the loss",
            )
        found = torch.autograd.grad(one.loss, run.parameters, retain_graph=True, allow_unused=True)
        fill(self._layout.parts(gradient), found)
        return one.numbers, gradient

    def _agree(self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], power: float) -> bool:
        (numbers, gradient), (numbers2, gradient2) = one, other
        return (
            numbers.shape == numbers2.shape
            and self._near(numbers, numbers2, self._size, power)
            and self._near(gradient, gradient2, max(_largest(gradient), _SMALL), power)
        )

    def _near(self, one: Tensor, other: Tensor, size: float, power: float) -> bool:
        """Whether all numbers agree, to what is left of the lowest precision that is involved."""
        dtypes = {self._coarsest}
        if torch.is_autocast_enabled(one.device.type) and self._coarsest == torch.float32:
            dtypes.add(torch.get_autocast_dtype(one.device.type))
        tolerance = max(torch.finfo(dtype).eps for dtype in dtypes) ** power * size
        pairs = zip(torch.split(one, _PIECE), torch.split(other, _PIECE), strict=True)
        return all(_close(piece, theirs, tolerance) for piece, theirs in pairs)


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """`torch.allclose` with NaN equal to itself, which takes fifty times as long for what is finite."""
    low, high = (float(end) for end in (one - other).aminmax())
    if math.isnan(low):  # or one that is infinite less another
        return torch.allclose(one, other, rtol=0.0, atol=tolerance, equal_nan=True)
    return max(-low, high) <= tolerance


def confirmed(aim: LossAdapter, layout: Layout, ways: Sequence[Layers], batch: Batch) -> Layers | None:
    """The first of some ways that is right on the examples of a batch; raises where the model mixes examples.

    Rounding decides which of two nearly equal values a max-pool passes on, and then a gradient differs though
    nothing is mixed: about once in a hundred models. So what differs is looked at again on changed examples.
    """
    found = None
    for attempt in range(_ATTEMPTS):
        try:
            witness = IsolationProbe(aim, layout, change(batch, partial(_changed, attempt=attempt)))
        except InvalidInput:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        found = next(filter(witness.agrees, ways), None)
        if not ways or found is ways[0]:
            break
    return found


def _changed(part: Tensor, attempt: int) -> Tensor:
    return (part * (1 - attempt / 32) if part.is_floating_point() else part).roll(attempt, 0)


@dataclass(frozen=True)
class _Run:
    """The examples of a batch as they were seen, and the parameters that the model had."""

    seen: list[ExampleTrace]
    parameters: list[Tensor]


def _largest(values: Tensor) -> float:
    """The largest finite magnitude; 0 where nothing is finite."""
    return max(map(_abs_quantile, torch.split(values.detach(), _PIECE)), default=0.0)


def _abs_quantile(piece: Tensor) -> float:
    low, high = (float(end) for end in piece.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return max(-low, high)
    return float(piece.abs().nan_to_num(nan=0.0, posinf=0.0).max())


@contextmanager
def isolated_rng(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Inside, torch's generators start from `seed`; afterwards they stand where they stood. Other threads wait."""
    accelerated = device.type != "cpu"
    kind = device.type if accelerated else "cuda"
    with _ALONE, torch.random.fork_rng([device] if accelerated else [], device_type=kind):
        _seed(device, seed)
        yield


def _seed(device: torch.device, seed: int = 0) -> None:
    """``torch.manual_seed``, without its look at every accelerator that is not there: a millisecond or more."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def dropout_disabled(aim: LossAdapter, device: torch.device) -> Iterator[None]:
    """Switch a model's dropout off while the block runs, and put torch's generators back to where they were."""
    layers = [m for m in aim.model.modules() if isinstance(m, nn.RNNBase | nn.MultiheadAttention)]
    rates, before = [layer.dropout for layer in layers], aim.within
    try:
        for layer in layers:
            layer.dropout = 0.0
        aim.within = _NoDropout()
        # what checkpointing computes again, it computes outside of all modes: with dropout
        with isolated_rng(device), without_checkpoints():
            yield
    finally:
        aim.within = before
        for layer, rate in zip(layers, rates, strict=True):
            layer.dropout = rate


class _NoDropout(FunctionOverrides):
    """Dropout, as a module or as a function, does nothing."""

    def called(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The function itself, unless it is dropout."""
        if func in _DROPOUTS:
            return args[0] if args else given["input"]
        if "dropout_p" in given:
            given["dropout_p"] = 0.0
        return func(*args, **given)


_DROPOUTS = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout),
}
