"""Three views of one privacy-loss distribution: delta(epsilon), the f-DP trade-off curve, the largest advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisette.accounting import _float_error
from noisette.accounting._corrections import Correction, deltas_after_correction
from noisette.accounting._pmf import LARGEST_LOSS
from noisette.accounting.best_of import BestOf, to_expenditure
from noisette.accounting.pld import privacy_loss
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism

__all__ = ["Tradeoff", "tradeoff"]

Array = npt.NDArray[np.float64]

_DELTA = 1e-9  # at which it is settled how likely the unlikely is that floats do


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """What an attacker who sees everything that is released can do at best, from the same losses as epsilon.

    `epsilons` ascend; `deltas` are the least that hold at each.
    """

    epsilons: Array
    deltas: Array

    def false_negative(self, false_positive: npt.ArrayLike) -> Array:
        """The least false-negative rate of any membership test at each false-positive rate, from below.

        Every (epsilon, delta) holds at once, so it is the largest of 1 - delta - e^eps fp and e^-eps (1 - delta - fp).

        >>> from noisette.encoders import L2
        >>> from noisette.noise import Gaussian
        >>> curve = tradeoff(Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=1.0, steps=1))
        >>> curve.false_negative([0.5]).round(2).tolist()
        [0.16]
        """
        rate = np.asarray(false_positive, dtype=np.float64)
        if np.any((rate < 0) | (rate > 1)) or np.any(np.isnan(rate)):
            raise InvalidInput("a false-positive rate is outside [0, 1].", hint="give probabilities")
        flat = rate.ravel()[:, None]
        steep = 1 - self.deltas - np.exp(self.epsilons) * flat
        shallow = np.exp(-self.epsilons) * (1 - self.deltas - flat)
        best = np.maximum(steep, shallow).max(axis=1)
        return np.asarray(np.clip(best, 0.0, 1.0).reshape(rate.shape))

    @property
    def advantage(self) -> float:
        """The largest true-positive minus false-positive rate of any membership test: delta at epsilon 0."""
        return float(self.deltas[0])


def tradeoff(mechanisms: Mechanism | BestOf | Sequence[Mechanism | BestOf], points: int = 400) -> Tradeoff:
    """The trade-off of a mechanism or a search, or of several in order.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> round(tradeoff(Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=1.0, steps=1)).advantage, 4)
    0.3829
    """
    spending = to_expenditure(mechanisms)
    losses = privacy_loss(spending)
    never = float(losses.delta(np.array(LARGEST_LOSS)))  # a chance of losses that no epsilon covers
    epsilons = np.linspace(0.0, max(losses.epsilon(min(never + 1e-10, 1.0)), 1e-3), points)
    floats = _float_error.addition(spending, _DELTA, epsilon=0.0)
    return Tradeoff(epsilons, deltas_after_correction(floats or Correction(), epsilons, losses.delta))
