"""What a run as it is costs beyond the ideal one that accountants know: the one place where that is added.

Two things make a run differ from the ideal one: batches that are cut (`noisette.accounting._truncation`) and floats
(`noisette.accounting._float_error`). Either way the probability of whatever may be released is that of the ideal run up
to a factor e^shift and a chance, in both directions. If the ideal run is (epsilon, delta)-private, the real one is

    (epsilon + 2 shift, e^shift delta + (1 + e^(epsilon + shift)) chance)-private,

once for the data set on the left of the inequality, once for its neighbour on the right. The page on theory has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Correction", "deltas_after_correction", "epsilon_after_correction"]

_MOST_TRIES = 200
_OVERSHOT = 1e-7  # relative, of epsilon, so that the search ends on the safe side

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Correction:
    """By how much a run differs from the ideal one: a factor e^`shift`, but for a `chance`.

    >>> Correction(0.1) + Correction(0.0, shift=math.log(2))
    Correction(chance=0.2, shift=0.6931471805599453)
    """

    chance: float = 0.0
    shift: float = 0.0

    def __add__(self, other: Correction) -> Correction:
        """First this, then the `other`: what the other one scales includes this one's chance."""
        return Correction(self.chance * math.exp(other.shift) + other.chance, self.shift + other.shift)

    def __bool__(self) -> bool:
        return self.chance > 0 or self.shift > 0


def deltas_after_correction(addition: Correction, epsilons: Array, ideal: Callable[[Array], Array]) -> Array:
    """The deltas (n,) at `epsilons` (n,), ascending, where `ideal` gives those of the ideal run."""
    if not addition:
        return np.asarray(ideal(epsilons))
    with np.errstate(over="ignore"):
        extra = addition.chance * (1 + np.exp(epsilons - addition.shift))
    deltas = math.exp(addition.shift) * np.asarray(ideal(epsilons - 2 * addition.shift))
    # a chance weighs more the larger epsilon is, but what holds at one epsilon holds at every larger one
    return np.asarray(np.minimum.accumulate(np.minimum(1.0, deltas + extra)))


def epsilon_after_correction(addition: Correction, delta: float, epsilon: Callable[[float], float]) -> float:
    """The epsilon at `delta`, where `epsilon` gives that of the ideal run; infinite where there is none.

    What is found for the ideal run, e, has ``epsilon(left) <= e`` for the delta that is left of `delta` at e, so that
    it holds; it is the least such, but for a part in ten million.

    >>> [epsilon_after_correction(Correction(cut), 1e-5, lambda delta: 2.0) for cut in (0.0, 1e-5)]
    [2.0, inf]
    """
    found = epsilon(delta)
    if not addition:
        return found
    for _ in range(_MOST_TRIES):
        claimed = found * (1 + _OVERSHOT)
        if not claimed < 700:
            return math.inf
        left = (delta - addition.chance * (1 + math.exp(claimed + addition.shift))) * math.exp(-addition.shift)
        if not left > 0:
            return math.inf
        found = epsilon(left)
        if found <= claimed:
            return claimed + 2 * addition.shift
    return math.inf
