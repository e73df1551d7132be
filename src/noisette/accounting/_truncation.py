"""What it costs to cut batches that came out too large.

A step in which fewer than `most` of the others were drawn is a step without a cut. In any other one unit may take the
place of another, at a lower rate, which moves the sum by a difference of two encodings: `exchanges` says how often and
at which rate. For an accountant that does not know of cuts, what happens then counts as lost: a cut run and one that is
not are the same until a batch comes out larger than `most`, and `noisette.accounting._corrections` adds that chance to
delta. The page on theory has both proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from noisette.accounting.best_of import BestOf, Expenditure
from noisette.errors import Unaccountable
from noisette.mechanism import Mechanism
from noisette.sampling import Poisson

__all__ = [
    "Exchange",
    "exchanges",
    "min_max_batch",
    "reject_truncation",
    "step_truncation_probability",
    "truncation_probability",
    "untruncated",
]

_UP = 1 + 1e-9  # beyond the error of the tail in floats
_LEAST = 1e-300  # what a float can no longer tell counts as this much
_TOLD = 1e-200  # a tail that a quotient may be taken of
_FIRST, _MOST = 1.001, 1.03  # between the rates of a range of numbers of units
_ALL = 1 - 1e-9


def step_truncation_probability(sampling: Poisson, size: int = 1) -> float:
    """The chance that one batch is cut, from above: of a data set with `size` units more than `units`, the neighbour.

    >>> chance = step_truncation_probability
    >>> chance(Poisson(0.01)), chance(Poisson(0.01, max_batch=61, population=60))
    (0.0, 0.0)
    >>> round(step_truncation_probability(Poisson(0.5, max_batch=2, population=2)), 6)  # three of three
    0.125
    """
    if sampling.max_batch is None or sampling.population is None:
        return 0.0
    return _tail(sampling.max_batch, sampling.population + size - 1, sampling.rate)


def _tail(most: int, units: int, rate: float) -> float:
    """The chance that more than `most` of `units` + 1 join, from above."""
    from scipy.special import betainc  # noqa: PLC0415 - imported where it is used

    return min(1.0, max(_LEAST, _UP * float(betainc(most + 1, units - most + 1, rate)))) if most <= units else 0.0


def truncation_probability(spending: Expenditure, size: int = 1) -> float:
    """The chance that any batch of all steps of `spending` is cut, from above, with `size` units more.

    Of a search, that any batch of any of its runs or scores is: so many runs as there are on average, each of the kind
    that is cut most often (docs/selection.md has the proof).

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> from noisette.accounting.num_trials import PoissonNumTrials
    >>> run = Mechanism(L2(dim=9), Gaussian(1.0), sampling=Poisson(0.5, max_batch=2, population=2), steps=1)
    >>> round(truncation_probability((BestOf((run,), PoissonNumTrials(4)),)), 6)
    0.5
    """
    return sum(_chance(one, size) for one in spending)


def _chance(one: Mechanism | BestOf, size: int) -> float:
    if isinstance(one, Mechanism):
        return one.steps * step_truncation_probability(one.sampling, size)
    score = 0.0 if one.score is None else _chance(one.score, size)
    return one.trials.mean * (max(_chance(run, size) for run in one.runs) + score)


def untruncated(spending: Expenditure) -> Expenditure:
    """The same with batches as large as they come out, of whatever is drawn: what an accountant knows."""
    return tuple(
        one.replace(runs=tuple(map(_plain, one.runs)), score=None if one.score is None else _plain(one.score))
        if isinstance(one, BestOf)
        else _plain(one)
        for one in spending
    )


def _plain(mechanism: Mechanism) -> Mechanism:
    return mechanism.replace(sampling=Poisson(mechanism.rate))


@dataclass(frozen=True)
class Exchange:
    """With a `chance` of at most this, a unit more takes another one's place, at a `rate` of at most this."""

    chance: float
    rate: float


@lru_cache(maxsize=256)
def exchanges(sampling: Poisson) -> tuple[Exchange, ...]:
    """One of these holds for every data set of up to `units` units; none where nothing is ever cut.

    Of n others `most` or more are drawn with a chance that rises with n, and then the rate falls with n: every range of
    n has the chance of its end and the rate of its start. Ranges are short, in terms of the rate, near `units`.

    >>> [(round(one.chance, 4), round(one.rate, 4)) for one in exchanges(Poisson(0.5, max_batch=2, population=2))]
    [(0.25, 0.3333)]
    """
    if sampling.max_batch is None or sampling.population is None:
        return ()
    found: list[Exchange] = []
    top, factor = sampling.population, _FIRST
    highest = _UP * sampling.rate * sampling.max_batch / (sampling.max_batch + 1)
    while top >= sampling.max_batch:
        limit = min(highest, factor * _exchange_rate(sampling.max_batch, top, sampling.rate, highest))
        low = sampling.max_batch if limit >= highest else _fewest(sampling.max_batch, top, sampling.rate, limit)
        chance = _tail(sampling.max_batch - 1, top - 1, sampling.rate)
        if found and chance > _ALL * found[-1].chance:  # as likely at a higher rate: this one holds for both
            chance = found.pop().chance
        found.append(Exchange(chance, limit))
        top, factor = low - 1, min(factor**3, _MOST)
    return tuple(found)


def _exchange_rate(most: int, others: int, rate: float, highest: float) -> float:
    """The mean of rate * most / (K + 1) over the numbers K of others drawn that are at least `most`, from above."""
    from scipy.special import betainc  # noqa: PLC0415 - imported where it is used

    # (K + 1) P(K + 1 of n + 1) = (n + 1) rate P(K of n) makes it a quotient of two tails
    beyond, tail = betainc(most + 1, others - most + 1, rate), betainc(most, others - most + 1, rate)
    return min(highest, _UP**3 * most / (others + 1) * float(beyond / tail)) if tail > _TOLD else highest


def _fewest(most: int, top: int, rate: float, limit: float) -> int:
    """The least number of others, up to `top`, from which on the rate of an exchange is at most `limit`."""
    low = most - 1
    while top - low > 1:
        middle = (low + top) // 2
        low, top = (low, middle) if _exchange_rate(most, middle, rate, math.inf) <= limit else (middle, top)
    return top


def reject_truncation(mechanism: Mechanism) -> None:
    """Raise where somebody asks an accountant directly, who would leave the cut out."""
    if mechanism.sampling.max_batch is not None:
        raise Unaccountable(
            "Renyi divergences of one step do not tell what it costs to cut batches.", hint="ask guarantee"
        )


def min_max_batch(rate: float, units: int, steps: int, epsilon: float, delta: float) -> int:
    """The least `most` for which cutting `steps` batches of `units` units costs at most `delta`, at `epsilon`.

    >>> min_max_batch(0.01, units=60000, steps=1000, epsilon=3.0, delta=1e-7)
    773
    """
    allowed = delta / (steps * (1 + math.exp(epsilon)))
    low, high = 0, units + 1  # nothing is ever cut at units + 1, and everything at 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _tail(middle, units, rate) <= allowed else (middle, high)
    return high
