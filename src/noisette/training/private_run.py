"""The private step: sample, encode, pay, release, denoise. Everything that trains goes through here."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients, isolated_rng
from noisette._gradients.shape_errors import withheld
from noisette._numerics import fingerprint
from noisette._private import Private, Released, silence
from noisette._pytree import change
from noisette._release import release
from noisette._spec import canonical
from noisette.accounting import Ledger, guarantee
from noisette.denoisers import Denoiser, State
from noisette.errors import BudgetSpent, InvalidInput, MechanismMismatch
from noisette.mechanism import Guarantee, Mechanism, Mechanisms, mechanisms_hash, normalize_flags
from noisette.random import Generator
from noisette.training._datasets import BatchDraw, ExampleChunk, Examples
from noisette.training._grad_guard import Guard
from noisette.training._grouped_encoder import GroupedEncoder
from noisette.training._lookahead import ahead, flat
from noisette.training._rank_slice import RankSlice, batch_draws

__all__ = ["PrivateRun"]


class PrivateRun:
    """The private gradients of a whole run: iterate, and before each turn of your loop ``p.grad`` holds the next one.

    A turn samples a batch, encodes and sums its gradients, pays for the step in every ledger, releases the sum with
    noise, denoises it, and writes it into ``grad`` divided by the expected batch size, a public constant. The loop ends
    when the mechanism's steps are spent; asking for one more raises `BudgetSpent`. Make it with `make_private`.

    Several processes that have joined take every step together: each sums its share of one batch, process 0 pays, and
    all add the same noise, drawn from a secret that they share, to the same total.
    """

    def __init__(
        self,
        gradients: PerExampleGradients,
        examples: Examples,
        mechanisms: Mechanisms,
        *,
        share: RankSlice,
        denoiser: Denoiser,
        ledgers: Sequence[Ledger],
        seed: int | None,
    ) -> None:
        self.mechanisms, self.denoiser, self.processes = mechanisms, denoiser, share.processes
        self._gradients, self._examples, self._share = gradients, examples, share
        self._stream: Iterator[tuple[BatchDraw, Iterator[ExampleChunk]]] | None = None
        self._lock, self._started = threading.Lock(), False
        self._ledgers = tuple(ledgers)
        secret = None if seed is not None else self.processes.broadcast_bytes(os.urandom(32))
        self._noise = Generator(seed, purpose="noise", secret=secret)
        self._sampling = Generator(seed, purpose="sampling", secret=secret)
        # dropout, and what a data set draws: each process its own, or examples of two would share theirs
        self._dropout = Generator(seed, purpose=f"dropout {self.processes.rank}", secret=secret)
        self._previous: Tensor | None = None
        self.state: State = denoiser.init(mechanisms[0].noise, gradients.dim)
        self._prepaid = [0] * len(mechanisms)
        # the first ledger counts this run's own steps, also those of an earlier process that was cut off
        paid = _paid(mechanisms, self._ledgers[0]) if self._ledgers else self._prepaid
        self._paid = self.processes.all_gather(paid)[0]
        self.num_updates = 0
        self._guard = Guard(gradients.parameters)
        self.flags: tuple[str, ...] = ()
        self._computing = self.processes.digests(fingerprint())
        self.stamp(*["reproducible"] * self._noise.reproducible, *["inexact"] * (not gradients.exact))

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._gradients.model

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters that get private gradients."""
        return self._gradients.parameters

    @property
    def steps_paid(self) -> int:
        """Steps paid so far, also by earlier processes of the same run."""
        return sum(self._paid)

    @property
    def total(self) -> int:
        """Steps that the whole run may take."""
        return sum(mechanism.steps for mechanism in self.mechanisms)

    @property
    def steps_remaining(self) -> int:
        """Steps that can still be taken."""
        return sum(map(self._left, range(len(self.mechanisms))))

    @property
    def reproducible(self) -> bool:
        """Whether this process draws noise and batches from a seed; `flags` tell of earlier ones as well."""
        return self._noise.reproducible

    def stamp(self, *flags: str) -> None:
        """Qualify every guarantee of this run and, from the next payment on, of its ledgers."""
        self.flags = normalize_flags((*self.flags, *flags))

    def guarantee(self, delta: float, accountant: str = "pld") -> Guarantee:
        """What the steps paid so far promise at `delta`, with the flags of the run."""
        spent = tuple(m.replace(steps=steps) for m, steps in zip(self.mechanisms, self._paid, strict=True))
        return guarantee(spent, delta, accountant, examples=self._share.num_sampled).with_flags(*self.flags)

    def __len__(self) -> int:
        """The turns of a loop that begins now, which are the steps that are left: what a progress bar asks for.

        >>> import torch
        >>> from noisette import make_private
        >>> from noisette.encoders import L2
        >>> from noisette.noise import Gaussian
        >>> mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=3)
        >>> private = make_private(nn.Linear(2, 1), nn.MSELoss(), (torch.ones(8, 2), torch.ones(8, 1)), mechanism)
        >>> len(private), len(list(private)), len(private)
        (3, 3, 0)
        """
        return self.steps_remaining

    def __bool__(self) -> bool:
        """Whether it is a run, and not None: also where no step is left."""
        return True

    def __iter__(self) -> Iterator[int]:
        """Take steps until the budget is spent; yields the number of updates so far."""
        while self.steps_remaining:
            self.step()
            yield self.num_updates
        self._guard.assert_used()
        self.close()

    def step(self) -> Released:
        """One private step: ``grad`` of every trainable parameter is set, and the denoised release returned."""
        with self._lock:
            which = next((i for i in range(len(self.mechanisms)) if self._left(i)), None)
            if which is None:
                raise BudgetSpent(
                    f"all {self.total} steps of the mechanism are spent.", hint="plan more steps before the run starts"
                )
            self._guard.assert_used()
            self._guard.clear_grads()
            self._started = True
            try:
                denoised = self._run_step(which)
            except BaseException:
                self._stream = None  # what was read ahead is for other steps than those that are left
                raise
            self.num_updates += 1
            self._guard.on_grads_written(last=not self.steps_remaining)
            if not self.steps_remaining:
                self._stream = None
            return denoised

    def close(self) -> None:
        """Let the processes that read go, and the model be used as any other: done already where the last step is used.

        The next step begins anew.
        """
        self._stream = None
        self._guard.disarm()

    def _run_step(self, which: int) -> Released:
        mechanism, self._guard.on = self.mechanisms[which], True
        # from a secret: under a seed that others know, one example more would change what all others draw
        fresh = isolated_rng(self._gradients.device, int(self._dropout.random_words(1)[0] >> np.uint64(1)))
        self._gradients.recheck()
        if self.processes.size > 1 and self.processes.digests(fingerprint()) != self._computing:
            raise InvalidInput(
                "a process computes with other threads or libraries than when the run began.",
                hint="leave torch.set_num_threads and the like alone until the run has ended; resume it",
            )
        with fresh, silence(), ahead(self._gradients.parameters, self._previous, self.denoiser.lookahead):
            total = withheld(lambda: self._encode_batch_sum(mechanism))
        self.stamp(*["inexact"] * (not self._gradients.exact))
        self._pay(which)
        released = release(mechanism, total, generator=self._noise)
        del total  # a large model's sum takes as much memory as its noise
        denoised, self.state = self.denoiser.update(released, self.state)
        if self.denoiser.lookahead:
            self._previous = flat(self._gradients.parameters)
        self._gradients.write(denoised.values, over=mechanism.rate * self._share.num_sampled)
        return denoised

    def _left(self, which: int) -> int:
        return max(0, self.mechanisms[which].steps - self._paid[which]) + self._prepaid[which]

    def _pay(self, which: int) -> None:
        """Pay for this step, and for a few to come: a sync to disk takes as long as a small step.

        Process 0 has the ledgers. Nobody leaves before it has paid.
        """
        if self._prepaid[which] == 0:
            mechanism = self.mechanisms[which]
            ahead = min(1 + self.total // 200, 16, mechanism.steps - self._paid[which])
            for ledger in self._ledgers:
                ledger.spend(mechanism, ahead, flags=self.flags)
            self.processes.check_same_weights(self._gradients.parameters, self.num_updates)
            self._paid[which] += ahead
            self._prepaid[which] += ahead
        self._prepaid[which] -= 1

    def _encode_batch_sum(self, mechanism: Mechanism) -> Private:
        """The sum over a whole batch, which is drawn alike on every process; each reads and encodes its share of it."""
        if self._stream is None:
            left = [self._left(which) for which in range(len(self.mechanisms))]
            self._stream = self._examples.stream(batch_draws(self.mechanisms, left, self._share, self._sampling))
        found = next(self._stream, None)
        if found is None or self.mechanisms[found[0].which] is not mechanism:
            raise AssertionError("batches are drawn in the order of the steps")
        draw, parts = found
        encoder, alike = mechanism.encoder, self._share.examples_of(mechanism.sampling.max_batch)
        total, gathering = None, None if draw.groups is None else GroupedEncoder(encoder, draw.groups)
        for positions, part in parts:
            batch = change(part, lambda tensor: tensor.to(self._gradients.device, non_blocking=True))
            if draw.groups is None or gathering is None:
                mine = self._gradients.encoded_sum(encoder, batch, alike=alike)
                total = mine if total is None else total + mine
                continue
            taken = 0
            for rows in self._gradients.chunks(batch, alike=alike):
                gathering.add(positions[taken : taken + len(rows)], rows)
                taken += len(rows)
        if gathering is not None:
            total = gathering.total
        return self.processes.all_reduce(Private(self._gradients.zeros()) if total is None else total)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to know: public values only, and nothing of any generator."""
        return {
            "mechanism": mechanisms_hash(self.mechanisms),
            "ledgers": [ledger.tip for ledger in self._ledgers],
            "paid": list(self._paid),
            "updates": self.num_updates,
            "denoiser": canonical(self.denoiser),
            "denoiser_state": self.state,
            "previous": self._previous,
            "flags": list(self.flags),
        }

    def __reduce__(self) -> NoReturn:
        """A copy would spend the same steps a second time."""
        raise InvalidInput(
            "a private run can be neither copied nor pickled.",
            hint="save its state_dict(), which has what a resumed run needs; copy private.model for its weights",
        )

    def _check_books(self, heads: Sequence[str], paid: Sequence[int]) -> None:
        """Raise where this run would pay into other ledgers than the one that the checkpoint is of.

        Of several processes, number 0 alone has ledgers.
        """
        if not self.processes.is_main:
            return
        if heads and not (self._ledgers and _held(self._ledgers, heads)):
            raise MechanismMismatch(
                "a ledger does not hold the entries that the checkpoint was saved with.",
                hint="give the ledgers that this run pays into, its own first: one was cut, exchanged or left out",
            )
        if self._ledgers and not heads and any(paid):
            raise MechanismMismatch(
                "the checkpoint is of a run without a ledger, whose steps no ledger would count.",
                hint="resume without a ledger, or start a new run with one",
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`: same mechanism, same ledger, fresh noise and fresh batches."""
        if not isinstance(state, Mapping) or not self.state_dict().keys() <= state.keys():
            raise InvalidInput(
                "the state is not that of a private run.",
                hint="give what state_dict() of a private run has returned; model.load_state_dict takes a model's",
            )
        if state["mechanism"] != mechanisms_hash(self.mechanisms):
            raise MechanismMismatch(
                f"the checkpoint belongs to mechanism {state['mechanism']}, this run is "
                f"{mechanisms_hash(self.mechanisms)}.",
                hint="resume with the mechanism that the run was started with",
            )
        self._check_books(state["ledgers"], state["paid"])
        if self._started and not self._ledgers:
            raise MechanismMismatch(
                "this run has taken steps that no ledger counts, and the checkpoint may not know of them.",
                hint="load it into a new run, or give the run a ledger",
            )
        if state["denoiser"] != canonical(self.denoiser):
            raise MechanismMismatch(
                f"the checkpoint belongs to the denoiser {state['denoiser']}, this run has {self.denoiser!r}.",
                hint="resume with the denoiser that the run was started with",
            )
        self._stream = None
        self._paid = [max(ours, theirs) for ours, theirs in zip(self._paid, state["paid"], strict=True)]
        self.stamp(*state["flags"])
        self.state, self.num_updates, self._previous = state["denoiser_state"], state["updates"], state["previous"]


def _held(books: Sequence[Ledger], heads: Sequence[str]) -> bool:
    """Whether the first of the `heads` is in the first book, and every other in some book."""
    return books[0].contains_entry(heads[0]) and all(
        any(book.contains_entry(head) for book in books) for head in heads[1:]
    )


def _paid(mechanisms: Mechanisms, own: Ledger) -> list[int]:
    """Steps of each mechanism that a run's `own` ledger has paid, in order; one that comes twice is filled in turn."""
    left, out = {mechanism: own.spent(mechanism) for mechanism in mechanisms}, []
    for number, mechanism in enumerate(mechanisms):
        again = mechanism in mechanisms[number + 1 :]
        out.append(min(left[mechanism], mechanism.steps) if again else left[mechanism])
        left[mechanism] -= out[-1]
    return out
