"""What it costs to cut batches that came out too large: exactly how often that happens, paid for in delta.

A cut run and one that is not cut are the same until a batch comes out larger than `most`, which has a chance of at
most the binomial tail in every step. `noisette.account.additions` adds that chance to delta, whatever the noise.
"""

from __future__ import annotations

import math

from noisette.errors import Unaccountable
from noisette.mechanism import Mechanism
from noisette.sampling import Poisson
from noisette.search import Search, Spending

__all__ = ["chance_of_a_cut", "cut_chance", "largest_batch", "refuse_cut", "uncut"]

_UP = 1 + 1e-9  # beyond the error of the tail in floats
_LEAST = 1e-300  # what a float can no longer tell counts as this much


def cut_chance(sampling: Poisson) -> float:
    """The chance that one batch is cut, from above: of a data set with one unit more than `units`, the neighbour.

    >>> cut_chance(Poisson(0.01)), cut_chance(Poisson(0.01, most=61, units=60))
    (0.0, 0.0)
    >>> round(cut_chance(Poisson(0.5, most=2, units=2)), 6)  # three of three
    0.125
    """
    if sampling.most is None or sampling.units is None or sampling.most > sampling.units:
        return 0.0
    return _tail(sampling.most, sampling.units, sampling.rate)


def _tail(most: int, units: int, rate: float) -> float:
    """The chance that more than `most` of `units` + 1 join, from above."""
    from scipy.special import betainc  # noqa: PLC0415 - imported where it is used

    return min(1.0, max(_LEAST, _UP * float(betainc(most + 1, units - most + 1, rate)))) if most <= units else 0.0


def chance_of_a_cut(spending: Spending) -> float:
    """The chance that any batch of all steps of `spending` is cut, from above.

    Of a search, that any batch of any of its runs or scores is: so many runs as there are on average, each of the kind
    that is cut most often (docs/selection.md has the proof).

    >>> from noisette import L2, Gaussian
    >>> from noisette.trials import PoissonTrials
    >>> run = Mechanism(L2(dim=9), Gaussian(1.0), sampling=Poisson(0.5, most=2, units=2), steps=1)
    >>> round(chance_of_a_cut((Search((run,), PoissonTrials(4)),)), 6)
    0.5
    """
    return sum(map(_chance, spending))


def _chance(one: Mechanism | Search) -> float:
    if isinstance(one, Mechanism):
        return one.steps * cut_chance(one.sampling)
    return one.trials.mean * (max(map(_chance, one.runs)) + (0.0 if one.score is None else _chance(one.score)))


def uncut(spending: Spending) -> Spending:
    """The same with batches as large as they come out, of whatever is drawn: what an accountant knows."""
    return tuple(
        one.replace(runs=tuple(map(_plain, one.runs)), score=None if one.score is None else _plain(one.score))
        if isinstance(one, Search)
        else _plain(one)
        for one in spending
    )


def _plain(mechanism: Mechanism) -> Mechanism:
    return mechanism.replace(sampling=Poisson(mechanism.rate))


def refuse_cut(mechanism: Mechanism) -> None:
    """Raise where somebody asks an accountant directly, who would leave the cut out."""
    if mechanism.sampling.most is not None:
        raise Unaccountable(
            "the losses of one step do not tell what it costs to cut batches.", hint="ask guarantee, or tradeoff"
        )


def largest_batch(rate: float, units: int, steps: int, epsilon: float, delta: float) -> int:
    """The least `most` for which cutting `steps` batches of `units` units costs at most `delta`, at `epsilon`.

    >>> largest_batch(0.01, units=60000, steps=1000, epsilon=3.0, delta=1e-7)
    773
    """
    allowed = delta / (steps * (1 + math.exp(epsilon)))
    low, high = 0, units + 1  # nothing is ever cut at units + 1, and everything at 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _tail(middle, units, rate) <= allowed else (middle, high)
    return high
