"""Faults of the encoding: a vector outside the image that the accountant knows, or examples that mix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from noisette import Encoder, Private
from noisette._gradients import PerExampleGradients, engine, probe, state_guard, state_snapshot, strategies
from noisette._gradients.layer_strategy import Layers
from noisette._spec import registered
from noisette.encoders import L2, Ranked
from noisette.encoders._rank_based import SortedProfile
from noisette.encoders.profiles import HalfNormal
from tests.conformance.encoder_checks import check_image, check_neighbours, check_total
from tests.conformance.test_encoders import test_encoder as conforms
from tests.faults.table import Catcher, by, fault
from tests.promises import test_sensitivity
from tests.promises.test_sensitivity import Case
from tests.promises.test_trained_is_accounted import test_trained_is_accounted as trained
from tests.support import slow_ranked
from tests.unit._gradients import test_probe, test_state_guard
from tests.unit.encoders import test_rank_based
from tests.unit.training import test_private_run

Encode = Callable[[Encoder, Tensor], Tensor]

RANKED, BALL = Ranked(dim=50), L2(dim=50)
ENCODED_ALONE = test_sensitivity.check_one_encoding


def _encodes(patch: pytest.MonkeyPatch, change: Callable[[Encode, Encoder, Tensor], Tensor]) -> None:
    """`change(honest, encoder, rows)` stands in for every encoding, whichever way an encoder takes to it."""
    honest = Encoder.encode

    def encode_sum(self: Encoder, rows: Tensor, groups: Tensor | None = None) -> Private:
        return Private(self.encode(rows if groups is None else self._grouped(rows, groups)).sum(dim=0))

    patch.setattr(Encoder, "encode", lambda self, rows: change(honest, self, rows))
    patch.setattr(Encoder, "encode_sum", encode_sum)
    for kind in (Encoder, *registered(Encoder).values()):
        patch.setattr(kind, "kernel", lambda self: None)


def _by_rank(encoder: SortedProfile) -> Tensor:
    """The first profile with one bound for each rank, ascending, (dim,)."""
    return torch.cat([torch.from_numpy(b.levels[0].repeat(b.counts)) for b in encoder.blocks])


PAPERS = by(test_rank_based.test_is_the_papers_algorithm, kind=Ranked, slow=slow_ranked.ranked, family=HalfNormal())


@fault("ranks mis-sorted", PAPERS)
def not_sorted(patch: pytest.MonkeyPatch) -> None:
    """Bounds in the order of coordinates. No more leaks than before, but it is another encoding."""

    def wrong(honest: Encode, encoder: Encoder, rows: Tensor) -> Tensor:
        if not isinstance(encoder, SortedProfile):
            return honest(encoder, rows)
        bounds = _by_rank(encoder)
        return torch.minimum(torch.maximum(rows.double().nan_to_num(), -bounds), bounds)

    _encodes(patch, wrong)


@fault("ranks mis-sorted: two at the top", PAPERS, by(conforms, encoder=RANKED, check=check_image))
def two_at_the_top(patch: pytest.MonkeyPatch) -> None:
    """The first coordinate gets the bound of the highest rank, too."""

    def wrong(honest: Encode, encoder: Encoder, rows: Tensor) -> Tensor:
        out = honest(encoder, rows)
        if isinstance(encoder, SortedProfile) and len(out):
            top = _by_rank(encoder).max()
            out[:, 0] = rows[:, 0].double().nan_to_num().clamp(-top, top)
        return out

    _encodes(patch, wrong)


@fault("bounds too wide by one part in 2^20", by(conforms, encoder=RANKED, check=check_image))
def too_wide(patch: pytest.MonkeyPatch) -> None:
    _encodes(patch, lambda honest, encoder, rows: honest(encoder, rows) * (1 + 2.0**-20))


def _judges(says: str) -> tuple[Catcher, ...]:
    return by(trained, name="L2 and Gaussian", says=says), by(
        trained, name="Ranked and Student-t", says=says, heavy=True
    )


@fault("no encoding", *_judges("an encoded row lies outside the image"))
def as_they_came(patch: pytest.MonkeyPatch) -> None:
    _encodes(patch, lambda honest, encoder, rows: 3 * rows.double())


@fault("encoding dropped on one layer", *_judges("the released sum is not that of the encoded gradients"))
def last_layer_as_it_is(patch: pytest.MonkeyPatch) -> None:
    encode_sum = Encoder.encode_sum

    def wrong(self: Encoder, rows: Tensor, groups: Tensor | None = None) -> Private:
        values = encode_sum(self, rows, groups).unsafe_values().clone()
        values[-123:] = rows[:, -123:].sum(dim=0)
        return Private(values)

    patch.setattr(Encoder, "encode_sum", wrong)


@fault(
    "encoding dropped on one layer: its bias",
    by(ENCODED_ALONE, case=Case(encoder="L2", one=1)),
    by(ENCODED_ALONE, case=Case(encoder="Ranked, blocks", one=1)),
)
def bias_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """The last three coordinates leave the encoder as they came, but for broken rows."""
    honest = Encoder.encode_sum

    def wrong(self: Encoder, rows: Tensor, groups: Tensor | None = None) -> Private:
        values = honest(self, rows, groups).unsafe_values().clone()
        whole = rows[rows.isfinite().all(dim=1)]
        values[-3:] = whole[:, -3:].sum(dim=0)
        return Private(values)

    patch.setattr(Encoder, "encode_sum", wrong)


@fault(
    "NaN row not zeroed",
    by(conforms, encoder=BALL, check=check_total),
    by(conforms, encoder=RANKED, check=check_total),
)
def broken_coordinates_only(patch: pytest.MonkeyPatch) -> None:
    """The NaN itself becomes zero, and the rest of its row stays."""
    _encodes(patch, lambda honest, encoder, rows: honest(encoder, rows.double().nan_to_num(posinf=0.0, neginf=0.0)))


@fault(
    "one norm for the whole batch",
    by(conforms, encoder=BALL, check=check_neighbours),
    by(ENCODED_ALONE, case=Case(encoder="L2", one=1)),
)
def batch_norm_clipped(patch: pytest.MonkeyPatch) -> None:
    def wrong(honest: Encode, encoder: Encoder, rows: Tensor) -> Tensor:
        out = honest(encoder, rows)
        return out / max(1.0, float(out.norm()) / encoder.radius) if isinstance(encoder, L2) else out

    _encodes(patch, wrong)


@fault(
    "examples that mix accepted",
    by(test_private_run.test_models_that_mix_examples_are_refused),
    by(test_probe.test_whatever_mixes_examples_is_refused, name="minus the batch mean"),
)
def no_isolation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PerExampleGradients, "check", lambda self, batch, likely=None: None)
    for module in (probe, engine):
        patch.setattr(module, "reject_batch_statistics", lambda model: None)


@fault(
    "what outlives a call accepted",
    by(test_state_guard.test_what_outlives_a_call_is_refused, name="the number of calls"),
    by(test_state_guard.test_what_outlives_a_call_is_refused, name="a running maximum, as a tensor"),
    by(test_state_guard.test_a_tensor_outside_the_model_that_an_earlier_call_has_made_is_refused),
)
def state_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_guard.TracedCall, "changed", lambda self, before, after: False)
    patch.setattr(state_guard.TracedCall, "admit", lambda self, batch: batch)


@fault(
    "random numbers of Python and numpy accepted",
    by(test_state_guard.test_random_numbers_that_are_not_of_torch_are_refused, source="random", path="layers"),
    by(test_state_guard.test_random_numbers_that_are_not_of_torch_are_refused, source="numpy.random", path="vmap"),
)
def common_sources(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_snapshot.StateSnapshot, "common_sources", lambda self: None)


@fault(
    "a generator that the model holds taken for a thing without a state",
    by(test_state_guard.test_random_numbers_that_are_not_of_torch_are_refused, source="Net.rolls", path="layers"),
    by(test_state_guard.test_random_numbers_that_are_not_of_torch_are_refused, source="Net.dice", path="vmap"),
)
def own_generators(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_snapshot, "_state", lambda value: None)


@fault(
    "parameters from a list of the model's own accepted",
    by(test_state_guard.test_parameters_that_no_gradient_would_reach_are_refused, fast=True),
)
def parameters_aside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_guard, "_asks_for_form", lambda func, args: True)


@fault(
    "a batch shown to the model as it is",
    by(test_state_guard.test_rows_that_are_sorted_and_put_back_are_those_of_their_examples),
    by(
        test_state_guard.test_one_example_moves_the_sum_by_its_own_encoding, name="centred in batches above 8", chunk=64
    ),
)
def not_mapped(patch: pytest.MonkeyPatch) -> None:
    """The general way differentiates the loss of a whole chunk, and every example gets the chunk's mean."""

    def together(self: strategies.Vmap, batch: object, out: Tensor) -> None:
        leaves = [p.detach().requires_grad_() for p in self._layout.parameters]
        with torch.enable_grad():
            named = dict(zip(self._layout.names, leaves, strict=True))
            loss = self._aim.with_state(named, batch)
        for part, found in zip(self._layout.parts(out), torch.autograd.grad(loss, leaves), strict=True):
            part.copy_(found.expand_as(part))

    patch.setattr(Layers, "candidates", classmethod(lambda *_: ()))
    patch.setattr(strategies.Vmap, "rows", together)
