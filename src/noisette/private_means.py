"""Private statistics of a table: the means of its columns in one release, with the noise that suits so few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noisette._private import Private
from noisette._quantization import MAX_ROWS
from noisette._release import release
from noisette._spec import whole
from noisette.accounting import Ledger, guarantee
from noisette.accounting.calibrate import calibrate
from noisette.accounting.num_trials import NumTrials
from noisette.encoders import Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.errors import InvalidInput
from noisette.mechanism import Guarantee, Mechanism
from noisette.noise import Gaussian, GeneralizedGaussian, Laplace, Noise
from noisette.random import Generator

__all__ = ["FEW", "Means", "plan_means", "private_means"]

FEW: tuple[Noise, ...] = (Laplace(), GeneralizedGaussian(shape=1.5), Gaussian())
"""From one number to many: the law of the least error flattens from Laplace to Gaussian."""


@dataclass(frozen=True, eq=False)
class Means:
    """What was released: `values` float64 (F,) within the bounds, and what is known of their errors.

    `std` (F,) is the standard deviation of the noise on each mean, before it was cut off at the bounds. It is public,
    as is all else here. `reproducible`, among the `flags`, marks noise from a seed, which hides nothing.
    """

    values: Tensor
    std: Tensor
    mechanism: Mechanism
    flags: tuple[str, ...]

    def guarantee(self, delta: float) -> Guarantee:
        """What this release promises at `delta`, by itself."""
        return guarantee(self.mechanism, delta).with_flags(*self.flags)


def plan_means(
    columns: int,
    epsilon: float,
    delta: float,
    noises: Sequence[Noise] = FEW,
    *,
    examples: int | None = None,
    trials: NumTrials | None = None,
) -> Mechanism:
    """The mechanism that releases means of `columns` columns with the least mean square error, of those with `noises`.

    Every row counts once, so there is nothing to sample: the rate is 1 and there is one step. A row moves the sum by
    at most 1 in every coordinate. No private number is looked at. A delta that promises nothing to a public number of
    `examples` is refused. With `trials`, the budget is that of a search which chooses by the means.

    >>> type(plan_means(5, epsilon=1.0, delta=1e-5).noise).__name__
    'Laplace'
    """
    count = whole("columns", columns, least=1)
    flat = Ranked(dim=count, profiles=HalfNormal(levels=1), radius=math.sqrt(count))
    if not noises:
        raise InvalidInput("there is no noise to choose from.", hint="give at least one, like [Laplace()]")
    once = [Mechanism(flat, noise, rate=1.0, steps=1) for noise in noises]
    plans = [calibrate(one, epsilon, delta, examples=examples, trials=trials) for one in once]
    return min(plans, key=lambda plan: plan.noise.std)


def private_means(
    rows: Tensor,
    lower: Tensor,
    upper: Tensor,
    mechanism: Mechanism,
    *,
    ledger: Ledger | Sequence[Ledger] = (),
    seed: int | None = None,
) -> Means:
    """Means (F,) of the columns of `rows` (N, F), in which values beyond `lower` and `upper` (F,) are cut off.

    The bounds must be known beforehand, and N is public. The release is paid for in every ledger before it is made.
    `seed` makes one that can be repeated and must not be published.

    **Formal guarantees.** This is one step of `mechanism` on rows in units of half their bounds, so its encoder bounds
    what a row can do. A row with a NaN or an infinity counts as one at the middle of the bounds. Rows and release lie
    on a public grid (`noisette._quantization`), so that the bits of a float say no more than the number they stand for.

    >>> ages = torch.tensor([[31.0], [62.0], [47.0]]).repeat(1000, 1)
    >>> mechanism = plan_means(1, epsilon=1.0, delta=1e-5, noises=[Laplace()])
    >>> means = private_means(ages, torch.tensor([0.0]), torch.tensor([120.0]), mechanism)
    >>> print(means.guarantee(1e-5))
    epsilon = 0.9997 at delta = 1e-05
    >>> bool((means.values - 46.67).abs() < 1)
    True
    """
    lower, upper = _bounds(rows, lower, upper)
    encoder = mechanism.encoder
    if (mechanism.rate, mechanism.steps, encoder.micro_batch) != (1.0, 1, 1):
        raise InvalidInput(
            f"rate {mechanism.rate:g}, steps {mechanism.steps} and micro_batch {encoder.micro_batch} are not all 1.",
            hint="let plan_means make it",
        )
    if len(rows) > MAX_ROWS:
        raise InvalidInput(f"more than {MAX_ROWS:,} rows may not add up exactly.", hint="take means of fewer rows")
    unit = (upper - lower) / 2
    middle = lower + unit
    total = Private(encoder.encode((rows.double() - middle) / unit).sum(dim=0))
    flags = () if seed is None else ("reproducible",)
    for book in (ledger,) if isinstance(ledger, Ledger) else ledger:
        book.spend(mechanism, flags=flags)
    released = release(mechanism, total, generator=Generator(seed, purpose="noise"))
    means = middle + unit * (released.values / len(rows)).clamp(-1, 1)
    std = released.noise.std / len(rows) * unit
    return Means(means, std, mechanism, flags)


def _bounds(rows: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    lower, upper = torch.as_tensor(lower).double(), torch.as_tensor(upper).double()
    if rows.ndim != 2 or len(rows) == 0 or lower.shape != rows.shape[1:] or upper.shape != rows.shape[1:]:
        raise InvalidInput(
            f"rows {tuple(rows.shape)} do not fit bounds {tuple(lower.shape)} and {tuple(upper.shape)}.",
            hint="give rows (N, F) and one lower and one upper bound for each of F columns",
        )
    if not bool((lower < upper).all()) or not bool(torch.isfinite(upper - lower).all()):
        raise InvalidInput("some bounds are not a range.", hint="give finite bounds, the lower below the upper")
    return lower, upper
