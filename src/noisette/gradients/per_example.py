"""The gradient of every example of a batch, in chunks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from noisette.batch import Batch, change, filled, parts, size
from noisette.encode import Encoder
from noisette.errors import InvalidInput, NoisetteError
from noisette.gradients import sums
from noisette.gradients.calls import Calls
from noisette.gradients.isolation import Witness, made_up, refuse_batch_statistics, without_dropout
from noisette.gradients.layers import Layers
from noisette.gradients.layout import Layout
from noisette.gradients.losses import Loss
from noisette.gradients.misfit import telling
from noisette.gradients.objective import aim_of
from noisette.gradients.steady import Sizes, steady
from noisette.gradients.terms import Term
from noisette.gradients.ways import Loop, Vmap, Way
from noisette.objectives import Objective
from noisette.private import Private
from noisette.spec import whole

__all__ = ["Gradients", "SlowPath", "Trial"]

_ATTEMPTS = 3
_FUSED_CHUNK = 256  # examples whose activations are held at a time, where no gradient is
_LINEAR_CHUNK = 4096  # the same where all layers are Linear, whose activations are small


class SlowPath(UserWarning):
    """Gradients are computed one example at a time, because torch.func.vmap cannot map some layer over examples."""


@dataclass(frozen=True)
class Trial:
    """How made-up examples were computed, and what stood in the way of the rules, by name of the layer."""

    path: str
    obstacles: Mapping[str, str]


class Gradients:
    """Per-example gradients of a model's trainable parameters, laid flat in the order of ``named_parameters``.

    `goal` is an ordinary torch loss for batches ``(inputs, targets)``, or an ``objective(model, batch)`` for whatever a
    batch is. It sees one example at a time, as a batch of one, and what it returns is summed. The model runs
    in the mode it is in, also under ``torch.no_grad()``; its buffers and ``grad`` stay as they are; dropout draws for
    each example anew.

    Models made of Linear (on vectors) and Conv2d layers take a fast path: one pass back to the outputs of the layers,
    and a rule for each layer. All others go through torch.func, and where that cannot, through a loop over examples,
    which is said once by a `SlowPath` warning. The first use asks `check` which rules are right.

    **Formal guarantees.** A row depends on its own example only, up to rounding, by construction: the model is shown
    one example at a time, by vmap or in a loop, and a call that uses what an earlier one has left is refused.

    >>> gradients = Gradients(nn.Linear(3, 2), nn.CrossEntropyLoss(), chunk=4)
    >>> gradients.dim
    8
    >>> [tuple(rows.shape) for rows in gradients.chunks((torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))]
    [(3, 8), (3, 8)]
    """

    def __init__(self, model: nn.Module, goal: Loss | Objective, *, chunk: int = 64) -> None:
        self._aim, self._layout = aim_of(model, goal), Layout(model)
        self._chunk = whole("chunk", chunk, least=1)
        self._calls = Calls(model, self._aim.given)
        self._fast = self._candidates()
        self._general: tuple[Way, ...] = tuple(way(self._aim, self._layout, self._calls) for way in (Vmap, Loop))
        self._trusted: list[bool] | None = None
        self._sizes: Sizes | None = None
        self._slow: str | None = None

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
        """Whether no bit of a row depends on other examples, as far as the last check could tell."""
        return self._sizes is not None

    def zeros(self) -> Tensor:
        """The sum of no gradients, float64 (dim,)."""
        return torch.zeros(self.dim, dtype=torch.float64, device=self.device)

    @property
    def path(self) -> str:
        """The path that the next chunk is tried on: "layers", "vmap" or "loop"."""
        return type(self._ways()[0]).__name__.lower()

    def chunks(self, batch: Batch, *, alike: int | None = None) -> Iterator[Tensor]:
        """Gradients of the examples of a batch, in order: rows (b, dim), b <= chunk.

        With `alike`, the most examples that a batch may have, whatever computes them is given as many each time, and
        what was added is left out.

        Memory is set by the chunk, not by the batch; an empty batch has no rows. The rows are one reused buffer: take
        what is needed from them before asking for the next chunk.

        >>> gradients = Gradients(nn.Linear(1, 1, bias=False), nn.MSELoss())
        >>> total = sum(rows.sum(0) for rows in gradients.chunks((torch.ones(5, 1), torch.zeros(5, 1))))
        >>> torch.allclose(total, 5 * 2 * gradients.parameters[0].detach().flatten())
        True
        """
        self._check(batch)
        return self._stream(batch, alike)

    def encoded_sum(self, encoder: Encoder, batch: Batch, *, alike: int | None = None) -> Private:
        """The sum of encodings of the gradients of a batch, private.

        Where the native kernel knows every layer and the encoder, gradients are encoded as they are computed, and none
        is stored; everything else goes through `chunks`. Not for micro-batches, whose members are encoded as one.

        >>> from noisette import L2
        >>> gradients = Gradients(nn.Linear(3, 2), nn.CrossEntropyLoss())
        >>> gradients.encoded_sum(L2(dim=8), (torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])))
        Private(dim=8)
        """
        self._check(batch)
        self._trust(batch)
        self._layout.spare()  # of what the last step has left: this one's activations would come on top of it
        try:
            total = self._fused_sum(encoder, batch)
        except (NoisetteError, torch.cuda.OutOfMemoryError):
            raise
        except Exception:  # noqa: BLE001 - it does not fit; or nothing does, which is told below
            total = None
        if total is None:
            total = self.zeros()
            for rows in self.chunks(batch, alike=alike):
                total += encoder.encode_sum(rows).unsafe_values()
        self._layout.spare()
        return Private(total)

    def _fused_sum(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """The encoded sum by the kernel, with few rows in memory or none; None where that cannot be had."""
        kernel, way = encoder.kernel(), self._ways()[0]
        if kernel is None or not isinstance(way, Layers) or not sums.takes(kernel, self._layout):
            return None
        total, terms = torch.zeros(0, dtype=torch.float64), list[Term]()
        most = _LINEAR_CHUNK if way.linear and kernel.limit is not None else _FUSED_CHUNK
        sizes = self._sizes or Sizes()
        most = sizes.most(min(most, sums.at_a_time(way.copied)))
        for part in parts(batch, most):
            terms = way.terms(filled(part, sizes.of(size(part), most)), size(part))
            self._layout.spare()
            total = total if len(total) else self.zeros()  # not before: a pass of a large model takes as much
            sums.add(kernel, terms, self._layout, size(part), total, most)
        return sums.in_order(terms, self._layout, total) if terms else self.zeros()

    def check(self, batch: Batch) -> None:
        """Try the model on made-up examples of the shapes of a batch, which may be empty; not on its own examples.

        Raises InvalidInput where a made-up example's gradient alone differs from its gradient in a batch, where a loss
        of many is not made of the losses of each, or where a layer of the BatchNorm family gathers statistics: what
        such a model does with a batch cannot be had in private. Of the fast ways those remain that agree with the
        gradient of one example alone. Dropout is off meanwhile; a model that is random in some other way gets the same
        draws for every comparison.

        >>> Gradients(nn.Linear(3, 2), nn.CrossEntropyLoss()).check((torch.randn(2, 3), torch.tensor([0, 1])))
        """
        self._tried(batch)

    def trial(self, batch: Batch) -> Trial:
        """`check`, and how the made-up examples are computed then: what a run would find out, without a private one.

        >>> Gradients(nn.Linear(3, 2), nn.CrossEntropyLoss()).trial((torch.randn(2, 3), torch.tensor([0, 1])))
        Trial(path='layers', obstacles={})
        """
        made, obstacles = self._tried(batch), dict[str, str]()
        rows = self._layout.rows(size(made))
        with torch.enable_grad(), without_dropout(self._aim, self.device):
            for way in () if self._fast else self._candidates():
                try:
                    way.rows(made, rows)
                    obstacles[self._culprit(None)] = "its rules give other gradients than autograd"
                except Exception as error:  # noqa: BLE001 - whatever a model raises under vmap
                    obstacles[self._culprit(error)] = str(error).partition("\n")[0].partition(". ")[0]
        if self._slow is not None:
            obstacles.setdefault(self._slow, "torch.func.vmap cannot run it")
        for way in self._fast[:1]:
            if sums.at_a_time(way.copied) < _FUSED_CHUNK:
                many = f"every example gets a copy of {way.copied:,} parameters that no rule knows"
                obstacles[", ".join(way.layers_of_copies())] = many
        return Trial(self.path, obstacles)

    def _tried(self, batch: Batch) -> Batch:
        """The made-up examples that the model could run, on which it was checked."""
        self._check(batch)
        *others, last = made_up(batch)
        with torch.enable_grad(), without_dropout(self._aim, self.device):
            for made in others:
                try:
                    self._fast = self._confirmed(made)
                    break
                except NoisetteError:
                    raise
                except Exception:  # noqa: BLE001 - these may be no labels, tokens or lengths; others may
                    continue
            else:
                with telling(self.model, last):
                    made, self._fast = last, self._confirmed(last)
            if not self._fast:  # vmap may not run the model, and the loop then does
                self._slow = self._fill(made, self._layout.rows(size(made))) or self._slow
            way = self._ways()[0]
            self._sizes = steady(way, made, self._layout, self._most(way))
        self._layout.spare()
        self._trusted = self._modes()
        return made

    def _candidates(self) -> tuple[Layers, ...]:
        return Layers.candidates(self._aim, self._layout, self._calls)

    def _confirmed(self, batch: Batch) -> tuple[Layers, ...]:
        """The fast ways that are right on the examples of a batch; raises where the model mixes examples.

        Rounding decides which of two nearly equal values a max-pool passes on, and then a gradient differs though
        nothing is mixed: about once in a hundred models. So what differs is looked at again on changed examples.
        """
        for attempt in range(_ATTEMPTS):
            try:
                witness = Witness(self._aim, self._layout, change(batch, partial(_changed, attempt=attempt)))
            except InvalidInput:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            confirmed = tuple(way for way in self._fast if witness.confirms(way))
            if confirmed == self._fast:
                break
        return confirmed

    def write(self, flat: Tensor, over: float = 1.0) -> None:
        """Set ``grad`` of every trainable parameter from a vector (dim,), divided by `over` and copied.

        >>> layer = nn.Linear(2, 1)
        >>> Gradients(layer, nn.MSELoss()).write(torch.tensor([1.0, 2.0, 3.0]))
        >>> layer.weight.grad, layer.bias.grad
        (tensor([[1., 2.]]), tensor([3.]))
        """
        self._layout.write(flat, over)

    def _check(self, batch: Batch) -> None:
        size(batch)
        if not self._layout.describes(self.model):
            raise InvalidInput(
                f"the trainable parameters of {type(self.model).__name__} are others than at the start.",
                hint="freeze or replace parameters first, then make Gradients",
            )
        refuse_batch_statistics(self.model)

    def _modes(self) -> list[bool]:
        return [module.training for module in self.model.modules()]

    def _trust(self, batch: Batch) -> None:
        """Check the model where that is still to be done for the mode that it is in."""
        if self._trusted != self._modes():
            self.check(batch)

    def _stream(self, batch: Batch, alike: int | None) -> Iterator[Tensor]:
        self._trust(batch)
        sizes = self._sizes or Sizes()
        most = sizes.most(min(self._chunk, sums.at_a_time(self.dim)))
        for part in parts(batch, most):
            count = size(part)
            wide = sizes.of(count if alike is None else alike, most)
            rows = self._layout.rows(wide)
            slow = self._fill(filled(part, wide), rows) or self._slow
            if slow is not None:
                self._slow = None  # said once
                warnings.warn(
                    SlowPath(f"torch.func.vmap cannot run {slow}, so gradients take one pass for each example"),
                    stacklevel=2,
                )
            yield rows[:count]

    def _most(self, way: Way) -> int:
        """The largest number of examples that a way is given at a time: more where the kernel may store no rows."""
        held = min(self._chunk, sums.at_a_time(self.dim))
        plain = all(p.dtype != torch.float64 and p.device.type == "cpu" for p in self.parameters)
        return max(held, min(_FUSED_CHUNK, sums.at_a_time(way.copied))) if isinstance(way, Layers) and plain else held

    def _ways(self) -> tuple[Way, ...]:
        return (*self._fast, *self._general)

    def _fill(self, batch: Batch, rows: Tensor) -> str | None:
        """Fill `rows` by the first way that can; the layer that only the loop could run, the first time that it does.

        A way is given up only when a slower one succeeds: what fails everywhere is an error of the caller's.
        """
        culprit = None
        ways = self._ways()
        for way in ways:
            try:
                way.rows(batch, rows)
            except (NoisetteError, torch.cuda.OutOfMemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a model raises where it is not run as it was written
                culprit = self._culprit(error)
                if way is ways[-1]:  # made-up examples passed, so it lies in these, and the message may tell of them
                    raise InvalidInput(
                        f"{culprit} or the loss fails on an example ({type(error).__name__}).",
                        hint="are all targets and tokens below the number of classes and of embeddings?",
                    ) from None
            else:
                given_up = ways[: ways.index(way)]
                self._fast = tuple(w for w in self._fast if w not in given_up)
                self._general = tuple(w for w in self._general if w not in given_up)
                return culprit if isinstance(way, Loop) else None
        raise AssertionError("the last way either returns or raises")

    def _culprit(self, error: BaseException | None) -> str:
        """The innermost module that was running, by class and name: shapes and values in the error are private."""
        names = {module: name for name, module in self.model.named_modules()}
        found: nn.Module = self.model
        trace = None if error is None else (error.__cause__ or error).__traceback__
        while trace is not None:
            owner = trace.tb_frame.f_locals.get("self")
            found = owner if isinstance(owner, nn.Module) and owner in names else found
            trace = trace.tb_next
        return f"{type(found).__name__} {names[found]!r}" if names[found] else type(found).__name__


def _changed(part: Tensor, attempt: int) -> Tensor:
    return (part * (1 - attempt / 32) if part.is_floating_point() else part).roll(attempt, 0)
