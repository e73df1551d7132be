"""What a promise for one example, or one unit, leaves to somebody who has several of them.

The data sets with and without k examples are k steps apart, each of which the promise bounds. A test of level a has at
most the power T(a) over one step, where T(a) is the least of delta + a e^epsilon over all pairs that hold, so at most
T(T(...T(a))) over k of them. That is a trade-off curve again, and gives back an epsilon at any delta. Nothing is lost
where the curve is tight: k examples of Gaussian noise have the curve of a shift that is k times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from noisette._spec import whole
from noisette.accounting._corrections import Correction
from noisette.accounting._pmf import LARGEST_LOSS
from noisette.accounting._truncation import truncation_probability, untruncated
from noisette.accounting.account import check_delta, epsilon_as_run, guarantee
from noisette.accounting.best_of import BestOf, Expenditure, to_expenditure
from noisette.accounting.pld import privacy_loss
from noisette.accounting.rdp import Rdp, epsilon_tighter, renyi
from noisette.mechanism import COVERED, Mechanism

__all__ = ["group_epsilon"]

Array = npt.NDArray[np.float64]

_LEVELS = np.geomspace(1e-60, 1.0, 2**14)  # of tests; a cell of them is 0.008 of epsilon
_POINTS = 500
_MOST = 600.0  # of an epsilon whose exponential is a float
_TAILS = tuple(10.0**-power for power in range(6, 60, 2))


def group_epsilon(mechanisms: Mechanism | BestOf | Sequence[Mechanism | BestOf], size: int, delta: float) -> float:
    """An epsilon at `delta` for adding or removing `size` examples at once, or units; infinite where none is known.

    Where that of one example covers floats this one does too, and counts as not known where it cannot.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=5.0), rate=1.0, steps=1)
    >>> round(group_epsilon(mechanism, 3, 1e-5), 2)  # 2.44 in truth, as for one example at the scale 5 / 3
    2.45
    """
    spending, size = to_expenditure(mechanisms), whole("size", size, least=1)
    plain = untruncated(spending)
    left_out = Correction(truncation_probability(spending, size))
    value, floats = epsilon_as_run(
        spending, check_delta(delta), lambda left: _epsilon(plain, size, left), left_out, size
    )
    if floats is None and value < math.inf and guarantee(spending, delta).arithmetic == COVERED:
        return math.inf
    return value


def _epsilon(plain: Expenditure, size: int, delta: float) -> float:
    powers = _powers(plain, size)
    # between two levels, the power of the upper one; below the lowest that of the lowest
    if powers[0] > delta:
        return math.inf
    upper = powers[1:]
    above = upper > delta
    return max(0.0, float(np.log((upper[above] - delta) / _LEVELS[:-1][above]).max(initial=0.0)) * (1 + 1e-12))


@lru_cache(maxsize=64)
def _powers(plain: Expenditure, size: int) -> Array:
    """The largest power of a test of each level, for `size` examples."""
    epsilons, deltas = _pairs(plain)
    powers = _LEVELS
    for _ in range(size):
        best = np.ones_like(powers)
        for epsilon, delta in zip(epsilons, deltas, strict=True):
            factor = math.exp(epsilon)
            np.minimum(best, delta + factor * powers, out=best)
            np.minimum(best, -math.expm1(-epsilon) + (delta + powers) / factor, out=best)
        powers = np.minimum(best * (1 + 1e-12), 1.0)  # for its rounding
    return powers


@lru_cache(maxsize=16)
def _pairs(plain: Expenditure) -> tuple[Array, Array]:
    """Pairs of epsilon and delta that hold of one example: of its losses, and of moments far out, where these end."""
    losses = privacy_loss(plain)
    never = float(losses.delta(np.array(LARGEST_LOSS)))
    epsilons = np.linspace(0.0, min(max(losses.epsilon(min(never + 1e-14, 1.0)), 1e-3), _MOST), _POINTS)
    deltas = losses.delta(epsilons)
    known, rdp = [one for one in plain if isinstance(one, Mechanism)], Rdp()
    if len(known) < len(plain) or not all(map(rdp.supports, known)):
        return epsilons, deltas
    divergences = renyi(tuple(known))
    told = [(epsilon_tighter(divergences, delta), delta) for delta in _TAILS]
    tails = np.array([(epsilon, delta) for epsilon, delta in told if epsilon < _MOST]).reshape(-1, 2)
    return np.concatenate([epsilons, tails[:, 0]]), np.concatenate([deltas, tails[:, 1]])
