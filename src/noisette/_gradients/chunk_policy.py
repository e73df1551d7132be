"""How gradients of examples of one shape are computed: by which way, and how many at a time.

All of it is decided on synthetic examples, and for each shape by itself. So which way a private example takes follows
from its own shape and from what is public, whatever else was drawn, and nothing is said about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import torch
from torch import nn

from noisette._gradients.batch_invariance import ChunkSizes, Places, Weights, find_invariant_chunk_sizes
from noisette._gradients.flat_params import Layout
from noisette._gradients.fused_clip import rows_at_a_time
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import LossAdapter
from noisette._gradients.probe import synthetic_batches
from noisette._gradients.shape_errors import as_user_error
from noisette._gradients.strategies import Loop, Strategy
from noisette._numerics import strict
from noisette._pytree import Batch, kind, parts, size
from noisette.errors import InvalidInput, NoisetteError

__all__ = ["WIDE", "Plan", "Planner", "culprit"]

WIDE = 256  # examples of the largest size that is tried when a plan is made; others are when they are needed
_SUITED = 32  # examples with which nearly all that is computed ends with a vector
_OTHERS = 4  # times the smallest size: how many examples of a shape that was not checked are computed at a time


@dataclass(frozen=True)
class Plan:
    """A way, and the sizes of batches that it is given; with `places`, none before it was tried on synthetic examples.

    `limit` is the largest size, where the way itself does not need a smaller one.
    """

    way: Strategy
    sizes: ChunkSizes = ChunkSizes()
    places: Places | None = None
    limit: int | None = None

    def chunks(self, batch: Batch, most: int, alike: int | None = None) -> Iterator[tuple[Batch, int]]:
        """A batch in parts, and the size that each is filled up to, `most` or fewer.

        With `alike`, the most examples that a batch may have, sizes are those of a batch of as many.
        """
        count = size(batch)
        expected = count if alike is None else max(count, alike)
        largest = self._largest(most if self.limit is None else min(most, self.limit), expected)
        for part in parts(batch, largest):
            yield part, self._size(size(part) if alike is None else min(expected, largest), largest)

    def _largest(self, most: int, expected: int) -> int:
        """The smallest size for as many examples as are `expected`, or the largest up to `most`; one that holds."""
        largest = self.sizes.most(most)
        wanted = min(largest, self.sizes.of(expected))
        upward = range(wanted, largest + 1, self.sizes.step)
        downward = range(wanted, self.sizes.least, -self.sizes.step)
        return next(filter(self._holds, chain(upward, downward)), self.sizes.least)

    def _size(self, count: int, largest: int) -> int:
        """The smallest size for `count` examples that holds; `largest` does."""
        wanted = self.sizes.of(count)
        while wanted < largest and not self._holds(wanted):
            wanted += self.sizes.step
        return min(wanted, largest)

    def _holds(self, count: int) -> bool:
        return self.places is None or self.places.agree(count, self.sizes.least)


class Planner:
    """The plan for examples like those that a model was checked on, `first`, and those for examples of other shapes.

    `fast` is a way that was confirmed on the synthetic examples `made`, number `variant` of those of
    `synthetic_batches`; where there is none, one of the `general` ways is taken, the last of which is the loop. No
    larger sizes are tried at once than a few more than `likely` examples need. `inexact` says why last bits of a
    gradient may depend on other examples, `slow` why the loop is taken, and `culprit` which layer only the loop can
    run; each may be None. Where gradients are wanted `exactly` and would be inexact, the loop is taken.
    """

    def __init__(
        self,
        aim: LossAdapter,
        layout: Layout,
        fast: Layers | None,
        general: Sequence[Strategy],
        made: Batch,
        variant: int,
        *,
        chunk: int,
        likely: int | None,
        exactly: bool,
    ) -> None:
        self._aim, self._layout, self._variant, self._made = aim, layout, variant, made
        self._weights, self._loop = Weights(layout), general[-1]
        self._most = WIDE if likely is None else min(WIDE, _upward(likely))
        if fast is not None:
            fast.settled = True  # it has just run
        way, self.culprit = (fast, None) if fast is not None else self._first(general, made)
        self.slow = None if self.culprit is None else f"torch.func.vmap cannot run {self.culprit}"
        self.first, self.inexact = self._sized(way, made, chunk)
        if self.inexact is not None and exactly:
            if not _shown(layout.parameters[0].device):
                raise InvalidInput(
                    f"{self.inexact}, and an encoder by ranks jumps where bits change.",
                    hint="train on the processor, or take L2, which moves no further than a gradient does",
                )
            self.slow, self.inexact, self.first = self.inexact, None, Plan(self._loop)
        self._plans = {kind(made): self.first}

    def of(self, batch: Batch) -> Plan:
        """The plan for the examples of a batch, which are of one shape."""
        shape = kind(batch)
        if shape not in self._plans:
            self._plans[shape] = self._other(batch)
        return self._plans[shape]

    def _first(self, ways: Sequence[Strategy], made: Batch) -> tuple[Strategy, str | None]:
        """The fastest way that runs the model, and what only the loop can run."""
        found = None
        for way in ways[:-1]:
            try:
                way.rows(made, self._layout.rows(size(made)))
            except NoisetteError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a model raises where it is not run as it was written
                found = culprit(self._aim.model, error)
            else:
                return way, None
        with as_user_error(self._aim.model, made):
            self._loop.rows(made, self._layout.rows(size(made)))
        return self._loop, found

    def _sized(self, way: Strategy, made: Batch, chunk: int) -> tuple[Plan, str | None]:
        """The plan for a way, with the sizes that it may be given, and why last bits may depend on other examples."""
        if not _shown(self._layout.parameters[0].device):
            return Plan(way), _UNKNOWN
        if isinstance(way, Loop):
            return Plan(way), None
        if not strict():
            return Plan(way), _LATE
        held = min(chunk, self._most, rows_at_a_time(way.copied if isinstance(way, Layers) else self._layout.dim))
        most = max(held, min(self._most, rows_at_a_time(way.copied))) if isinstance(way, Layers) else held
        places = Places(way, self._aim, made, self._layout, self._weights)
        sizes = find_invariant_chunk_sizes(places, most, held)
        self._weights.spare()
        if sizes is None:
            return Plan(way), f"{type(self._aim.model).__name__} {_DRAWS if self._draws(way, made) else _BY_PLACE}"
        return Plan(way, sizes, places, limit=held if sizes.least == held else None), None

    def _draws(self, way: Strategy, made: Batch) -> bool:
        """Whether the same examples have visibly other gradients when they are computed again."""
        one, other = (self._layout.rows(size(made)).clone() for _ in range(2))
        for found in (one, other):
            way.rows(made, found)
        largest = float(one.abs().nan_to_num(nan=0.0, posinf=0.0).max())
        return not torch.allclose(one, other, rtol=1e-3, atol=1e-3 * largest, equal_nan=True)

    def _other(self, batch: Batch) -> Plan:
        """The plan for examples of another shape: the same way in two sizes, or the loop."""
        way, least = self.first.way, self.first.sizes.least
        if isinstance(way, Loop):
            return self.first
        made = next(islice(synthetic_batches(batch), self._variant, None))
        places = Places(way, self._aim, made, self._layout, self._weights)
        try:
            # at one and the same weights, so that what the model then keeps otherwise is kept for this shape
            for tried in (self._made, made):
                way.rows(tried, self._layout.rows(size(tried)))
            if self.first.places is None:  # inexact already, so that it has to run and no more
                return Plan(way)
            alike = places.agree(least, least) and places.agree(_OTHERS * least, least)
        except Exception:  # noqa: BLE001 - as above; what the loop raises on real examples is told then
            return Plan(self._loop)
        if not alike:
            return Plan(self._loop)
        return Plan(way, ChunkSizes(least, (_OTHERS - 1) * least), places, limit=_OTHERS * least)


def _upward(likely: int) -> int:
    """What few batches of a `likely` number of examples exceed, as a multiple of what suits most layers; never zero."""
    return max(1, -(-math.ceil(likely + 2 * math.sqrt(likely)) // _SUITED)) * _SUITED


_UNKNOWN = "how an accelerator rounds is not known"
_LATE = (
    "matrix products round by where they lie in memory (torch has no MKL, or multiplied before noisette was imported)"
)
_BY_PLACE = "rounds by the place of an example in a batch"
_DRAWS = (
    "or its objective draws random numbers by other functions than torch.rand and torch.randn, so that no comparison "
    "shows whether the place of an example in a batch makes a difference"
)


def _shown(device: torch.device) -> bool:
    """Whether the same computation rounds alike each time."""
    return device.type == "cpu"


def culprit(model: nn.Module, error: BaseException | None) -> str:
    """The innermost module that was running, by class and name: shapes and values in the error may be private."""
    names = {module: name for name, module in model.named_modules()}
    found = model
    trace = None if error is None else (error.__cause__ or error).__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        found = owner if isinstance(owner, nn.Module) and owner in names else found
        trace = trace.tb_next
    return f"{type(found).__name__} {names[found]!r}" if names[found] else type(found).__name__
