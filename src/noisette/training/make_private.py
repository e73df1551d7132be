"""The entrance: a model, what it is trained for, data and a mechanism become a private run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from noisette._gradients import Inexact, Loss, PerExampleGradients
from noisette._numerics import fingerprint
from noisette._quantization import MAX_ROWS
from noisette._spec import whole
from noisette.accounting import Ledger
from noisette.denoisers import Denoiser
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism, Mechanisms, to_mechanism_tuple
from noisette.objectives import Objective
from noisette.random import as_seed
from noisette.sampling import UNIT
from noisette.training._arguments import as_denoiser, as_ledgers, assert_materialized, check_loss
from noisette.training._datasets import Examples
from noisette.training._distributed import Processes
from noisette.training._rank_slice import RankSlice
from noisette.training._reading import LoaderExamples
from noisette.training._reject_loader_options import reject_loader_options
from noisette.training._units import Units
from noisette.training.closing import refuse_closed_over
from noisette.training.given import held
from noisette.training.plan import with_dim
from noisette.training.private_run import PrivateRun

__all__ = ["make_private", "to_examples"]


@reject_loader_options
def make_private(
    model: nn.Module,
    goal: Loss | Objective,
    data: Any,
    mechanism: Mechanism | Sequence[Mechanism],
    *,
    units: Any = None,
    per_unit: int = 8,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    denoiser: Denoiser | None = None,
    ledger: Ledger | Sequence[Ledger] | None = None,
    chunk: int = 64,
    seed: int | None = None,
    sharded: bool = False,
) -> PrivateRun:
    """Private gradients for your own loop over `data`.

    `data` is a pair ``(inputs, targets)`` of tensors or arrays with one row for each example, any other pytree of them,
    such as a dict, or a map-style ``Dataset`` of torch or Hugging Face, whose examples are read when they are drawn, by
    as many `workers` as you say. `collate_fn` is that of a DataLoader; it gets one example at a time, so that none is
    padded because of another: examples of the same shape are computed together.

    `goal` is an ordinary ``loss(outputs, targets)`` for pairs, or an ``objective(model, batch)`` for all else, with one
    loss for each example; `noisette.objectives` has some. An encoder whose ``dim`` is open gets the model's number of
    trained parameters. Each step is paid in every ledger before it is released; the first ledger is this run's own.
    `seed` makes a run that can be repeated and must not be released.

    With `units`, one id for each example, of any hashable type, it is people who are drawn: the gradients of at most
    `per_unit` examples of each, chosen at random anew, are averaged and then encoded as one. The guarantee is then for
    a person with all of their examples, and the mechanism is turned into one that says so.

    Under torchrun, inside ``join()``, every process calls this with the same arguments, all of the examples and, in
    process 0 alone, the ledgers; the model of process 0 is copied to all, and each process reads its share of a batch.
    Say `sharded` where each process holds examples of its own: N is then the number of all.

    >>> import torch
    >>> from noisette import Mechanism
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> model, x, y = nn.Linear(4, 2), torch.randn(100, 4), torch.randint(2, (100,))
    >>> mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for step in (private := make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism)):
    ...     optimizer.step()
    >>> print(private.guarantee(delta=1e-5))
    epsilon = 2.087 at delta = 1e-05
    """
    check_loss(goal)
    denoiser, ledgers, seed = as_denoiser(denoiser), as_ledgers(ledger), as_seed(seed)
    per_unit = whole("per_unit", per_unit, least=1)
    mechanisms = to_mechanism_tuple(mechanism)
    gradients = PerExampleGradients(model, goal, chunk=chunk, exactly=any(one.encoder.jumps for one in mechanisms))
    if not mechanisms:
        raise InvalidInput("no mechanism was given.", hint="give at least one Mechanism")
    assert_materialized(model.parameters())
    mechanisms = tuple(_for_units(with_dim(one, gradients.dim), units is not None) for one in mechanisms)
    for one in mechanisms:
        _ = one.noise.known_scale
    processes = Processes.current()
    expected = max(one.rate for one in mechanisms) / processes.size
    double = gradients.parameters[0].dtype == torch.float64
    dtype = torch.float64 if double else torch.get_default_dtype()
    examples = to_examples(data, collate_fn, whole("workers", workers, least=0), chunk, expected, seed, dtype)
    refuse_closed_over(model, goal, len(examples))
    size = 1 if units is None else per_unit
    gradients.check(
        examples.spec_batch(), likely=max(_likely(one, expected * len(examples), size) for one in mechanisms)
    )
    if (
        len(examples) > MAX_ROWS and expected * processes.size * len(examples) > MAX_ROWS / 2
    ):  # or more come once in e^1000000
        raise InvalidInput(
            f"batches of more than {MAX_ROWS // 2:,} examples are expected, and so many may not add up exactly.",
            hint="lower the rate",
        )
    if ledgers and not processes.is_main:
        raise InvalidInput(
            f"process {processes.rank} was given a ledger.",
            hint="open it in process 0 only, where processes.is_main is true",
        )
    processes.check_device(gradients.device)
    plan = {"mechanism": mechanisms, "denoiser": denoiser, "number_of_parameters": gradients.dim, "seed": seed}
    processes.assert_same("give every process the same arguments", **plan)
    if sharded and (units is not None or any(one.encoder.micro_batch > 1 for one in mechanisms)):
        raise InvalidInput(
            f"a {'unit' if units is not None else 'micro-batch'} may have examples of several processes.",
            hint="give every process all examples" + (", or take micro_batch=1" if units is None else ""),
        )
    people = None if units is None else Units.of(units, len(examples), per_unit)
    share = RankSlice.agreed(processes, examples, sharded=sharded, units=people)
    _check_count(share, mechanisms)
    processes.broadcast_(model.state_dict().values())
    unlike = _computing_unlike(processes, gradients, mechanisms)
    run = PrivateRun(gradients, examples, mechanisms, share=share, denoiser=denoiser, ledgers=ledgers, seed=seed)
    run.stamp(*["inexact"] * unlike)
    return run


def _computing_unlike(processes: Processes, gradients: PerExampleGradients, mechanisms: Mechanisms) -> bool:
    """Whether an example's gradient may depend on the process that computes it, and so on who else was drawn."""
    if len(set(processes.digests(f"{gradients.exact} {fingerprint()}"))) == 1:
        return False
    sentence = "the processes of this run do not compute alike: processors, threads or libraries differ"
    if any(one.encoder.jumps for one in mechanisms):
        raise InvalidInput(
            f"{sentence}, and an encoder by ranks jumps where bits change.",
            hint="start all processes on machines of one kind, with the same OMP_NUM_THREADS; or take L2",
        )
    warnings.warn(Inexact(f"epsilon is for real numbers only: {sentence}"), stacklevel=4)
    return True


def _likely(mechanism: Mechanism, expected: float, per_draw: int) -> int:
    """About how many examples sizes are made for: where batches are cut, for those of the largest, whoever is drawn."""
    most = mechanism.sampling.max_batch
    return math.ceil(expected) if most is None else most * per_draw


def _for_units(mechanism: Mechanism, given: bool) -> Mechanism:
    """`mechanism` for units where they are `given`; an error where it is for them, or cannot be, and they are not."""
    if not given:
        if mechanism.sampling.unit == UNIT:
            raise InvalidInput(
                "the mechanism is for units, and nobody says whose examples are whose.",
                hint="give units=ids, one id for each example",
            )
        return mechanism
    if mechanism.encoder.micro_batch > 1:
        raise InvalidInput("micro-batches of units are not known here.", hint="take micro_batch=1: a unit is a group")
    return mechanism.replace(sampling=mechanism.sampling.replace(unit=UNIT))


def _check_count(share: RankSlice, mechanisms: Mechanisms) -> None:
    if share.examples == 0:
        raise InvalidInput("the data set is empty.", hint="give at least one example")
    for one in mechanisms:
        if one.sampling.population is not None and share.num_sampled > one.sampling.population:
            raise InvalidInput(
                f"the cut is accounted for {one.sampling.population} {one.sampling.unit}s, and there are "
                f"{share.num_sampled}.",
                hint=f"give Poisson(..., population={share.num_sampled}), or a public number that is not smaller",
            )


def to_examples(
    data: Any,
    collate_fn: Callable[[list[Any]], Any] | None,
    workers: int,
    chunk: int,
    rate: float,
    seed: int | None,
    dtype: torch.dtype,
) -> Examples:
    """The examples of `data`; at a sampling `rate`, one batch of them is read ahead."""
    found = held(data, dtype)
    if found is None:
        expected = rate * len(data)
        return LoaderExamples(data, collate_fn, workers=workers, piece=chunk, expected=expected, seed=seed, dtype=dtype)
    if collate_fn is not None or workers:
        raise InvalidInput(
            "the data is in memory, where nothing is read or collated.",
            hint="leave collate_fn and workers out, or give a Dataset",
        )
    return found
