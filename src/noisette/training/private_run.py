"""The private step: sample, encode, pay, release, denoise. Everything that trains goes through here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisette.account import Ledger, guarantee
from noisette.denoise import Denoiser, Identity, State
from noisette.door import release
from noisette.encode import Encoder
from noisette.errors import BudgetSpent, InvalidInput, MechanismMismatch
from noisette.generator import Generator
from noisette.gradients import Gradients
from noisette.mechanism import Guarantee, Mechanism, Run, as_run, in_order, run_hash
from noisette.private import Private, Released
from noisette.spec import canonical
from noisette.training.guard import Guard
from noisette.training.plan import with_dim
from noisette.training.ranks import Ranks
from noisette.training.sampler import PoissonSampler
from noisette.training.share import Index, Share

__all__ = ["PrivateRun", "make_private"]


class PrivateRun:
    """The private gradients of a whole run: iterate, and before each turn of your loop ``p.grad`` holds the next one.

    A turn samples a batch, encodes and sums its gradients, pays for the step in every ledger, releases the sum with
    noise, denoises it, and writes it into ``grad`` divided by the expected batch size, a public constant. The loop ends
    when the mechanism's steps are spent; asking for one more raises `BudgetSpent`. Make it with `make_private`.

    Several processes that have joined take every step together: each sums its share of one batch, rank 0 pays, and all
    add the same noise, drawn from a secret that they share, to the same total.
    """

    def __init__(
        self,
        gradients: Gradients,
        inputs: Tensor,
        targets: Tensor,
        run: Run,
        *,
        share: Share,
        denoiser: Denoiser,
        ledgers: Sequence[Ledger],
        seed: int | None,
    ) -> None:
        self.run, self.denoiser, self.ranks = run, denoiser, share.ranks
        self._gradients, self._inputs, self._targets, self._share = gradients, inputs, targets, share
        self._ledgers = tuple(ledgers)
        secret = None if seed is not None else self.ranks.from_first(os.urandom(32))
        self._noise = Generator(seed, purpose="noise", secret=secret)
        self._sampling = Generator(seed, purpose="sampling", secret=secret)
        self._previous: Tensor | None = None
        self.state: State = denoiser.init(run[0].noise, gradients.dim)
        # the first ledger counts this run's own steps, also those of an earlier process that was cut off
        self._paid = self.ranks.gathered(_paid(run, self._ledgers[0]) if self._ledgers else [0] * len(run))[0]
        self._unused = [0] * len(run)
        self.updates = 0
        self._guard = Guard(gradients.parameters)
        self.stamps: tuple[str, ...] = ("reproducible",) if self._noise.reproducible else ()

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._gradients.model

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters that get private gradients."""
        return self._gradients.parameters

    @property
    def paid(self) -> int:
        """Steps paid so far, also by earlier processes of the same run."""
        return sum(self._paid)

    @property
    def total(self) -> int:
        """Steps that the whole run may take."""
        return sum(mechanism.steps for mechanism in self.run)

    @property
    def left(self) -> int:
        """Steps that can still be taken."""
        return sum(map(self._left, range(len(self.run))))

    @property
    def reproducible(self) -> bool:
        """Whether this process draws noise and batches from a seed; `stamps` tell of earlier ones as well."""
        return self._noise.reproducible

    def stamp(self, *stamps: str) -> None:
        """Qualify every guarantee of this run and, from the next payment on, of its ledgers."""
        self.stamps = in_order((*self.stamps, *stamps))

    def guarantee(self, delta: float, accountant: str = "pld") -> Guarantee:
        """What the steps paid so far promise at `delta`, with the stamps of the run."""
        spent = tuple(m.replace(steps=steps) for m, steps in zip(self.run, self._paid, strict=True))
        return guarantee(spent, delta, accountant, examples=self._share.examples).stamped(*self.stamps)

    def __iter__(self) -> Iterator[int]:
        """Take steps until the budget is spent; yields the number of updates so far."""
        while self.left:
            self.step()
            yield self.updates

    def step(self) -> Released:
        """One private step: ``grad`` of every trainable parameter is set, and the denoised release returned."""
        which = next((i for i in range(len(self.run)) if self._left(i)), None)
        if which is None:
            raise BudgetSpent(
                f"all {self.total} steps of the mechanism are spent.", hint="plan more steps before the run starts"
            )
        mechanism = self.run[which]
        self._guard.check_used()
        with _ahead(self._gradients.parameters, self._previous, self.denoiser.lookahead):
            total = self._private_sum(mechanism)
        self._pay(which)
        released = release(mechanism, total, generator=self._noise)
        denoised, self.state = self.denoiser.update(released, self.state)
        if self.denoiser.lookahead:
            self._previous = _flat(self._gradients.parameters)
        expected = mechanism.rate * self._share.examples
        self._gradients.write(denoised.values / expected)
        self.updates += 1
        self._guard.written()
        self._guard.on = self.left > 0  # afterwards the model is the user's
        return denoised

    def _left(self, which: int) -> int:
        return max(0, self.run[which].steps - self._paid[which]) + self._unused[which]

    def _pay(self, which: int) -> None:
        """Pay for this step, and for a few to come: a sync to disk takes as long as a small step.

        Rank 0 has the ledgers. Nobody leaves before it has paid.
        """
        if self._unused[which] == 0:
            mechanism = self.run[which]
            ahead = min(1 + self.total // 200, 16, mechanism.steps - self._paid[which])
            for ledger in self._ledgers:
                ledger.spend(mechanism, ahead, stamps=self.stamps)
            self.ranks.check_same_weights(self._gradients.parameters, self.updates)
            self._paid[which] += ahead
            self._unused[which] += ahead
        self._unused[which] -= 1

    def _private_sum(self, mechanism: Mechanism) -> Private:
        """The sum over a whole batch, which is drawn alike on every process; each encodes its share of it."""
        encoder, examples = mechanism.encoder, self._share.examples
        sampler = PoissonSampler(examples, mechanism.rate, self._sampling)
        index = sampler.draw()
        if encoder.micro_batch == 1:
            return self.ranks.total(self._part(encoder, self._share.of(index), None))
        groups = max(1, round(mechanism.rate * examples / encoder.micro_batch))
        mine, drawn = self._share.of_groups(index, sampler.groups(len(index), groups))
        return self.ranks.total(self._part(encoder, mine, torch.from_numpy(drawn)))

    def _part(self, encoder: Encoder, index: Index, groups: Tensor | None) -> Private:
        """The sum over the examples at `index`, with the group of each where there are any."""
        at = torch.from_numpy(index).to(self._inputs.device)
        inputs, targets = self._inputs[at], self._targets[at]
        if groups is None:
            return self._gradients.encoded_sum(encoder, inputs, targets)
        total = Private(torch.zeros(self._gradients.dim, dtype=torch.float64, device=self._inputs.device))
        # a group is encoded as one, so its examples must be at hand
        kept = [rows.clone() for rows in self._gradients.chunks(inputs, targets)]
        return total + encoder.encode_sum(torch.cat(kept), groups.to(self._inputs.device)) if kept else total

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to know: public values only, and nothing of any generator."""
        return {
            "mechanism": run_hash(self.run),
            "ledgers": [ledger.head for ledger in self._ledgers],
            "paid": list(self._paid),
            "updates": self.updates,
            "denoiser": canonical(self.denoiser),
            "denoiser_state": self.state,
            "previous": self._previous,
            "stamps": list(self.stamps),
        }

    def _check_books(self, heads: Sequence[str], paid: Sequence[int]) -> None:
        """Raise where this run would pay into other ledgers than the one that the checkpoint is of.

        Of several processes rank 0 alone has ledgers.
        """
        if not self.ranks.first:
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
        if state["mechanism"] != run_hash(self.run):
            raise MechanismMismatch(
                f"the checkpoint belongs to mechanism {state['mechanism']}, this run is {run_hash(self.run)}.",
                hint="resume with the mechanism that the run was started with",
            )
        self._check_books(state["ledgers"], state["paid"])
        if state["denoiser"] != canonical(self.denoiser):
            raise MechanismMismatch(
                f"the checkpoint belongs to the denoiser {state['denoiser']}, this run has {self.denoiser!r}.",
                hint="resume with the denoiser that the run was started with",
            )
        self._paid = [max(ours, theirs) for ours, theirs in zip(self._paid, state["paid"], strict=True)]
        self.stamp(*state["stamps"])
        self.state, self.updates, self._previous = state["denoiser_state"], state["updates"], state["previous"]


def _held(books: Sequence[Ledger], heads: Sequence[str]) -> bool:
    """Whether the first of the `heads` is in the first book, and every other in some book."""
    return books[0].holds(heads[0]) and all(any(book.holds(head) for book in books) for head in heads[1:])


def make_private(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor | npt.ArrayLike,
    targets: Tensor | npt.ArrayLike,
    mechanism: Mechanism | Sequence[Mechanism],
    *,
    denoiser: Denoiser | None = None,
    ledger: Ledger | Sequence[Ledger] = (),
    chunk: int = 64,
    seed: int | None = None,
    sharded: bool = False,
) -> PrivateRun:
    """Private gradients for your own loop over `inputs` (N, ...) and `targets` (N, ...), which stay on their device.

    An encoder whose ``dim`` is open gets the model's number of trained parameters. Each step is paid in every ledger
    before it is released; the first ledger is this run's own. `seed` makes a run that can be repeated and must not be
    released.

    Under torchrun, inside ``join()``, every process calls this with the same arguments, all of the examples and, on
    rank 0 alone, the ledgers; the model of rank 0 is copied to all. Say `sharded` where each process holds examples of
    its own: N is then the number of all.

    >>> from noisette import L2, Gaussian, Mechanism
    >>> model, x, y = nn.Linear(4, 2), torch.randn(100, 4), torch.randint(2, (100,))
    >>> mechanism = Mechanism(L2(dim=10), Gaussian(scale=1.0), rate=0.1, steps=3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for step in (private := make_private(model, nn.CrossEntropyLoss(), x, y, mechanism)):
    ...     optimizer.step()
    >>> print(private.guarantee(delta=1e-5))
    epsilon = 2.087 at delta = 1e-05
    """
    run = as_run(mechanism)
    inputs, targets = _tensor(inputs), _tensor(targets)
    gradients = Gradients(model, loss, chunk=chunk)
    if not run:
        raise InvalidInput("the run has no mechanism.", hint="give at least one Mechanism")
    run = tuple(with_dim(one, gradients.dim) for one in run)
    for one in run:
        _ = one.noise.known_scale
    if len(inputs) != len(targets):
        raise InvalidInput(
            f"{len(inputs)} inputs do not fit {len(targets)} targets.", hint="give one target for each example"
        )
    gradients.check(inputs, targets)
    denoiser, ledgers = denoiser or Identity(), (ledger,) if isinstance(ledger, Ledger) else tuple(ledger)
    ranks = Ranks.current()
    if ledgers and not ranks.first:
        raise InvalidInput(
            f"rank {ranks.rank} was given a ledger.", hint="open it on rank 0 only, where ranks.first is true"
        )
    ranks.check_device(inputs.device)
    plan = {"mechanism": run, "denoiser": denoiser, "number_of_parameters": gradients.dim, "seed": seed}
    ranks.check_same("give every process the same arguments", **plan)
    share = Share.agreed(ranks, inputs, targets, sharded=sharded)
    if share.examples == 0:
        raise InvalidInput("the data set is empty.", hint="give at least one example")
    if sharded and any(one.encoder.micro_batch > 1 for one in run):
        raise InvalidInput(
            "a micro-batch would have examples of several processes.",
            hint="give every process all examples, or take micro_batch=1",
        )
    ranks.copy_from_first(model.state_dict().values())
    return PrivateRun(gradients, inputs, targets, run, share=share, denoiser=denoiser, ledgers=ledgers, seed=seed)


def _paid(run: Run, own: Ledger) -> list[int]:
    """Steps of each mechanism of `run` that its ledger has paid, in order; one that comes twice is filled in turn."""
    left, out = {mechanism: own.spent(mechanism) for mechanism in run}, []
    for number, mechanism in enumerate(run):
        again = mechanism in run[number + 1 :]
        out.append(min(left[mechanism], mechanism.steps) if again else left[mechanism])
        left[mechanism] -= out[-1]
    return out


def _tensor(values: Any) -> Tensor:
    """Examples as a tensor; numbers of numpy and of lists in torch's own precision, which is that of models."""
    if isinstance(values, Tensor):
        return values
    try:
        made = torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError):
        raise InvalidInput(
            f"examples of type {type(values).__name__} are no numbers in rows of one shape.",
            hint="give a tensor, an array or a list with one row for each example",
        ) from None
    return made.to(torch.get_default_dtype()) if made.is_floating_point() else made


def _flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


class _ahead:  # noqa: N801 - a context manager
    """Inside, the parameters stand at theta + factor * (theta - previous); afterwards at theta again, bit by bit."""

    def __init__(self, parameters: Sequence[nn.Parameter], previous: Tensor | None, factor: float) -> None:
        self._parameters, self._previous, self._factor = parameters, previous, factor
        self._here: list[Tensor] = []

    def __enter__(self) -> None:
        if self._previous is None or self._factor == 0:
            return
        self._here = [parameter.detach().clone() for parameter in self._parameters]
        start = 0
        for parameter in self._parameters:
            before = self._previous[start : start + parameter.numel()].view_as(parameter)
            parameter.data.add_(parameter.data - before, alpha=self._factor)
            start += parameter.numel()

    def __exit__(self, *_: object) -> None:
        for parameter, value in zip(self._parameters, self._here, strict=False):
            parameter.data.copy_(value)
