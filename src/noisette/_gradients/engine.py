"""The gradient of every example of a batch, in chunks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from noisette._gradients import fused_clip
from noisette._gradients.chunk_policy import WIDE, Plan, Planner, culprit
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import GradForm
from noisette._gradients.hooks import refuse_hooks
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import adapt_loss
from noisette._gradients.per_example_loss import Loss
from noisette._gradients.probe import confirmed, dropout_disabled, reject_batch_statistics, synthetic_batches
from noisette._gradients.shape_errors import as_user_error, on_private
from noisette._gradients.state_guard import ModelTracer
from noisette._gradients.strategies import Loop, Strategy, Vmap
from noisette._gradients.waiting import waiting
from noisette._numerics import environment
from noisette._private import Private
from noisette._pytree import Batch, change, filled, size
from noisette._spec import whole
from noisette.encoders import Encoder
from noisette.errors import InvalidInput, NoisetteError
from noisette.objectives import Objective

__all__ = ["Inexact", "PerExampleGradients", "SlowPath", "Trial"]

_FUSED_CHUNK = WIDE  # examples whose activations are held at a time, where no gradient is
_LINEAR_CHUNK = 4096  # the same where all layers are Linear, whose activations are small


class SlowPath(UserWarning):
    """Gradients are computed one example at a time, for the reason that the warning names."""


class Inexact(UserWarning):
    """The last bits of a gradient may depend on other examples, so that epsilon is for real numbers only."""


@dataclass(frozen=True)
class Trial:
    """How made-up examples were computed, and what stood in the way of the rules, by name of the layer."""

    path: str
    obstacles: Mapping[str, str]


class PerExampleGradients:
    """Per-example gradients of a model's trainable parameters, laid flat in the order of ``named_parameters``.

    `goal` is an ordinary torch loss for batches ``(inputs, targets)``, or an ``objective(model, batch)`` for whatever a
    batch is. It sees one example at a time, as a batch of one, and what it returns is summed. The model runs
    in the mode it is in, also under ``torch.no_grad()``; its buffers and ``grad`` stay as they are; dropout draws for
    each example anew.

    Models made of Linear (on vectors) and Conv2d layers take a fast path: one pass back to the outputs of the layers,
    and a rule for each layer. All others go through torch.func, and where that cannot, through a loop over examples.
    `check` decides which, on synthetic examples, before any other is used; a `SlowPath` warning then names the reason
    for the loop. Examples of other shapes than the one that was checked go the same way if it can run their shape, and
    through the loop if not.

    **Formal guarantees.** A row depends on its own example only, up to rounding, by construction: the model is shown
    one example at a time, by vmap or in a loop, and a call that uses what an earlier one has left is refused. In the
    loop no bit of it depends on others, because all that is computed has the shape of one example. Elsewhere that is
    so if `exact`, and `inexact` says why not; where `exactly` is asked for, the loop is taken instead.

    >>> gradients = PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss(), chunk=4)
    >>> gradients.dim
    8
    >>> [tuple(rows.shape) for rows in gradients.chunks((torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))]
    [(3, 8), (3, 8)]
    """

    def __init__(self, model: nn.Module, goal: Loss | Objective, *, chunk: int = 64, exactly: bool = False) -> None:
        self._aim, self._layout = adapt_loss(model, goal), Layout(model)
        self._chunk, self._exactly = whole("chunk", chunk, least=1), exactly
        self._calls = ModelTracer(model, self._aim.given, self._layout)
        self._fast = self._candidates()
        self._general: tuple[Strategy, ...] = tuple(way(self._aim, self._layout, self._calls) for way in (Vmap, Loop))
        self._planner: Planner | None = None
        self._trusted: tuple[object, ...] | None = None
        self._like: Batch = None
        self._likely: int | None = None
        self._said: set[str] = set()

    @property
    def model(self) -> nn.Module:
        """The model whose gradients these are."""
        return self._aim.model

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The trainable parameters, each once."""
        return self._layout.parameters

    @property
    def dim(self) -> int:
        """Their number of coordinates: the length of a row."""
        return self._layout.dim

    @property
    def device(self) -> torch.device:
        """Where they are, and so where gradients are computed."""
        return self.parameters[0].device

    @property
    def exact(self) -> bool:
        """Whether no bit of a row depends on other examples."""
        return self.inexact is None

    @property
    def inexact(self) -> str | None:
        """Why last bits of a row may depend on other examples, None if they do not."""
        return None if self._planner is None else self._planner.inexact

    def zeros(self) -> Tensor:
        """The sum of no gradients, float64 (dim,)."""
        return torch.zeros(self.dim, dtype=torch.float64, device=self.device)

    @property
    def path(self) -> str:
        """The path that gradients take: "layers", "vmap" or "loop"."""
        way = (*self._fast, *self._general)[0] if self._planner is None else self._planner.first.way
        return type(way).__name__.lower()

    def chunks(self, batch: Batch, *, alike: int | None = None) -> Iterator[Tensor]:
        """Gradients of the examples of a batch, in order: rows (b, dim), b <= chunk.

        With `alike`, the most examples that a batch may have, whatever computes them is given as many each time, and
        what was added is left out.

        Memory is set by the chunk, not by the batch; an empty batch has no rows. The rows are one reused buffer: take
        what is needed from them before asking for the next chunk.

        >>> gradients = PerExampleGradients(nn.Linear(1, 1, bias=False), nn.MSELoss())
        >>> total = sum(rows.sum(0) for rows in gradients.chunks((torch.ones(5, 1), torch.zeros(5, 1))))
        >>> torch.allclose(total, 5 * 2 * gradients.parameters[0].detach().flatten())
        True
        """
        return self._stream(self._trusted_plan(batch), batch, alike)

    def encoded_sum(self, encoder: Encoder, batch: Batch, *, alike: int | None = None) -> Private:
        """The sum of encodings of the gradients of a batch, private.

        Where the native kernel knows every layer and the encoder, gradients are encoded as they are computed, and none
        is stored; everything else goes through `chunks`. Not for micro-batches, whose members are encoded as one.

        >>> from noisette.encoders import L2
        >>> gradients = PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss())
        >>> gradients.encoded_sum(L2(dim=8), (torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))
        Private(dim=8)
        """
        plan = self._trusted_plan(batch)
        self._layout.spare()  # of what the last step has left: this one's activations would come on top of it
        total = on_private(partial(self._fused_sum, encoder, batch, alike, plan))
        if total is None:
            total = self.zeros()
            for some in self._stream(plan, batch, alike):
                total += encoder.encode_sum(some).unsafe_values()
        self._layout.spare()
        return Private(total)

    def _fused_sum(
        self, encoder: Encoder, batch: Batch, alike: int | None = None, plan: Plan | None = None
    ) -> Tensor | None:
        """The encoded sum by the kernel, with few rows in memory or none; None if it does not take these layers."""
        plan, kernel = plan or self._trusted_plan(batch), encoder.kernel()
        way = plan.way
        if kernel is None or not isinstance(way, Layers) or not fused_clip.kernel_supports_layout(kernel, self._layout):
            return None
        total, terms = torch.zeros(0, dtype=torch.float64), list[GradForm]()
        most = _LINEAR_CHUNK if way.linear and kernel.limit is not None else _FUSED_CHUNK
        most = min(most, fused_clip.rows_at_a_time(way.copied))
        for part, wide in plan.chunks(batch, most, alike):
            terms = way.terms(filled(part, wide), size(part))
            self._layout.spare()
            total = total if len(total) else self.zeros()  # not before: a pass of a large model takes as much
            fused_clip.add(kernel, terms, self._layout, size(part), wide, total, most)
        return fused_clip.sum_in_order(terms, self._layout, total) if terms else self.zeros()

    def check(self, batch: Batch, likely: int | None = None) -> None:
        """Try the model on made-up examples of the shapes of a batch, which may be anywhere; not on its own examples.

        With `likely`, about how many examples batches will have, no more than a few more are computed at a time: larger
        batches are tried when they come.

        Raises InvalidInput where a made-up example's gradient alone differs from its gradient in a batch, where a loss
        of many is not made of the losses of each, or where a layer of the BatchNorm family gathers statistics: what
        such a model does with a batch cannot be had in private. Of the fast ways those remain that agree with the
        gradient of one example alone. Dropout is off meanwhile; a model that is random in some other way gets the same
        draws for every comparison.

        >>> PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss()).check((torch.randn(2, 3), torch.tensor([0, 1])))
        """
        self._likely = likely
        self._tried(batch)

    def trial(self, batch: Batch) -> Trial:
        """`check`, and how the made-up examples are computed then: what a run would find out, without a private one.

        >>> PerExampleGradients(nn.Linear(3, 2), nn.CrossEntropyLoss()).trial((torch.randn(2, 3), torch.tensor([0, 1])))
        Trial(path='layers', obstacles={})
        """
        made, obstacles = self._tried(batch), dict[str, str]()
        with torch.enable_grad(), dropout_disabled(self._aim, self.device):
            for way in () if self._fast else self._candidates():
                try:
                    way.rows(made, self._layout.rows(size(made)))
                    obstacles[culprit(self.model, None)] = "its rules give other gradients than autograd"
                except Exception as error:  # noqa: BLE001 - whatever a model raises under vmap
                    obstacles[culprit(self.model, error)] = str(error).partition("\n")[0].partition(". ")[0]
        if self._planner is not None and self._planner.culprit is not None:
            obstacles.setdefault(self._planner.culprit, "torch.func.vmap cannot run it")
        for way in self._fast[:1]:
            if fused_clip.rows_at_a_time(way.copied) < _FUSED_CHUNK:
                many = f"every example gets a copy of {way.copied:,} parameters that no rule knows"
                obstacles[", ".join(way.layers_of_copies())] = many
        return Trial(self.path, obstacles)

    def _tried(self, batch: Batch) -> Batch:
        """The made-up examples that the model could run, on which it was checked."""
        size(batch)
        self._check()
        self._calls.checking = True
        batch = change(batch, lambda part: part.new_empty((0, *part.shape[1:]), device=self.device))
        *others, last = synthetic_batches(batch)
        with waiting(type(self.model).__name__), torch.enable_grad(), dropout_disabled(self._aim, self.device):
            variant = 0
            for made in others:
                try:
                    fast = confirmed(self._aim, self._layout, self._fast, made)
                    break
                except NoisetteError:
                    raise
                except Exception:  # noqa: BLE001 - these may be no labels, tokens or lengths; others may
                    variant += 1
            else:
                made = last
                with as_user_error(self.model, made):
                    fast = confirmed(self._aim, self._layout, self._fast, made)
            # those before it are wrong; those behind may be asked for when something changes
            self._fast = self._fast[self._fast.index(fast) :] if fast is not None else ()
            self._planner = Planner(
                *(self._aim, self._layout, fast, self._general, made, variant),
                chunk=self._chunk,
                likely=self._likely,
                exactly=self._exactly,
            )
        self._layout.spare()
        self._calls.checking = False
        self._like, self._trusted = batch, self._situation()
        self._say()
        return made

    def _say(self) -> None:
        """Warn of what is slow or inexact, once for each reason."""
        if self._planner is None:
            return
        slow, inexact = self._planner.slow, self._planner.inexact
        if slow is not None and slow not in self._said:
            warnings.warn(SlowPath(f"gradients take one pass for each example: {slow}"), stacklevel=4)
        if inexact is not None and inexact not in self._said:
            warnings.warn(Inexact(f"epsilon is for real numbers only: {inexact}"), stacklevel=4)
        self._said |= {reason for reason in (slow, inexact) if reason is not None}

    def _candidates(self) -> tuple[Layers, ...]:
        return Layers.candidates(self._aim, self._layout, self._calls)

    def write(self, flat: Tensor, over: float = 1.0) -> None:
        """Set ``grad`` of every trainable parameter from a vector (dim,), divided by `over` and copied.

        >>> layer = nn.Linear(2, 1)
        >>> PerExampleGradients(layer, nn.MSELoss()).write(torch.tensor([1.0, 2.0, 3.0]))
        >>> layer.weight.grad, layer.bias.grad
        (tensor([[1., 2.]]), tensor([3.]))
        """
        self._layout.write(flat, over)

    def _check(self) -> None:
        """Raise where the model is no longer one that can be trained: in every step, whoever is drawn."""
        if not self._layout.describes(self.model):
            raise InvalidInput(
                f"the trainable parameters of {type(self.model).__name__} are others than at the start.",
                hint="freeze or replace parameters before make_private, and not after; make a new run for them",
            )
        reject_batch_statistics(self.model)
        refuse_hooks(self.model)

    def _situation(self) -> tuple[object, ...]:
        """What the check holds for: the modes that layers are in, and what decides how numbers are rounded."""
        return *environment(), *(module.training for module in self.model.modules())

    def recheck(self) -> None:
        """Look at the model again, and `check` it on examples of the same shapes if what decided that has changed."""
        self._check()
        if self._planner is not None and self._trusted != self._situation():
            self._tried(self._like)

    def _trusted_plan(self, batch: Batch) -> Plan:
        """How the examples of a batch are computed; the model is checked first if that is still to be done."""
        size(batch)
        self.recheck()
        if self._planner is None:
            self._tried(batch)
        assert self._planner is not None
        return self._planner.of(batch)

    def _stream(self, plan: Plan, batch: Batch, alike: int | None) -> Iterator[Tensor]:
        way = plan.way
        together = fused_clip.rows_at_a_time(way.copied if isinstance(way, Layers) else self.dim)
        for part, wide in plan.chunks(batch, min(self._chunk, together), alike):
            count, whole = size(part), filled(part, wide)
            if isinstance(way, Layers):
                terms = on_private(partial(way.terms, whole, count))
                for some, rows in way.blocks(terms, wide):
                    if some.start < count:
                        yield rows[: count - some.start]
            else:
                rows = self._layout.rows(wide)
                on_private(partial(way.rows, whole, rows))
                yield rows[:count]
