"""Epsilon at delta = 0: the largest privacy loss of any outcome, where the law of the noise bounds it.

By dominance (docs/theory.md) no shift within an image loses more in one coordinate than the profile does, and losses
of coordinates and of steps add up. All that is computed here is rounded up.
"""

from __future__ import annotations

import math

from noisette.accounting._pmf import LARGEST_LOSS
from noisette.accounting._truncation import exchanges
from noisette.accounting.best_of import BestOf, Expenditure
from noisette.accounting.num_trials import NumTrials
from noisette.encoders import Image
from noisette.errors import Unaccountable
from noisette.mechanism import Mechanism
from noisette.noise import Noise

__all__ = ["pure_epsilon", "refuse_unbounded"]

_UP = 1 + 1e-12  # beyond what rounding does to some sums and a logarithm


def pure_epsilon(spending: Expenditure) -> float:
    """The epsilon at delta = 0; infinite where nothing bounds it below what hides nothing, or for a search.

    >>> from noisette.encoders import Ranked
    >>> from noisette.noise import Laplace
    >>> round(pure_epsilon((Mechanism(Ranked(dim=1), Laplace(scale=2.0), rate=1.0, steps=10),)), 6)
    5.0
    """
    total = math.fsum(_of_all_steps(one) for one in spending) * _UP
    return total if total <= LARGEST_LOSS else math.inf


def refuse_unbounded(noise: Noise, trials: NumTrials | None = None) -> None:
    """Raise where there is no epsilon at delta = 0, with the reason: of one run, or of the best of several."""
    if trials is not None:
        raise Unaccountable(
            "what choosing the best of several runs costs is not known at delta = 0.",
            hint="give a delta above 0, like 1e-5",
        )
    if not noise.replace(scale=1.0).largest_loss(1.0) < math.inf:
        raise Unaccountable(
            f"{type(noise).__name__} noise has no finite epsilon at delta = 0: no bound on its losses is known.",
            hint="give a delta above 0, like 1e-5; or use noise of bounded losses, such as Laplace, and Ranked",
        )


def _of_all_steps(one: Mechanism | BestOf) -> float:
    if isinstance(one, BestOf):
        return math.inf
    if not one.steps:
        return 0.0
    worst = _sampled(_largest(one.encoder.image, one.noise), one.rate)
    if cut := exchanges(one.sampling):
        moved = _largest(one.encoder.exchanged, one.noise)
        worst = max(worst, *(_sampled(moved, each.rate) for each in cut))
    return one.steps * _UP * worst


def _sampled(loss: float, rate: float) -> float:
    """Log of 1 + q (e^loss - 1), the largest ratio of (1 - q) Q + q P to Q, and beyond that of Q to it."""
    if rate == 1:
        return loss
    return math.log1p(rate * math.expm1(loss)) if loss < LARGEST_LOSS else loss


def _largest(image: Image, noise: Noise) -> float:
    """The largest loss of a step in which an example takes part: in every block its worst profile's."""
    if noise.rotation_invariant:
        return float(noise.largest_loss(image.norm))
    blocks = [(noise.largest_loss(block.levels) @ block.counts).max() for block in image.profiles]
    return math.fsum(blocks) * _UP
