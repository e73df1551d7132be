"""The audit of one whole training run: canaries enter by coins, and an attacker guesses which did.

It attacks all of a training, whatever it consists of, at the price of a single run. It is weak: a canary is hard to
find in a trained model, and a few hundred guesses prove little. It finds gross errors, such as no noise at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisette._pytree import Batch, change, joined, kind, size
from noisette.accounting import guarantee, tradeoff
from noisette.audit._one_run_theory import epsilon_lower, epsilon_of_gaussian, gaussian_lower, too_many
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism, to_mechanism_tuple
from noisette.random import Generator

__all__ = ["OneRun", "Score", "one_run"]

Score = Callable[[Batch], Tensor]
"""From a batch of m examples, how much each looks like one that was trained on, (m,)."""

_SHARES = (0.02, 0.1, 0.3, 1.0)  # of the canaries, guessed; the rest are left out


@dataclass(frozen=True)
class OneRun:
    """What the attack on one run proves, beside what is claimed.

    With the stated `confidence`, epsilon at `delta` is at least `lower`. `lower_gaussian` is the same where the run's
    trade-off is Gaussian in shape, as that of many steps nearly is. `refuted` says that `lower` is above the claimed
    epsilon, or that there were more right guesses than the claimed trade-off allows. `flags` qualify all of them.
    """

    claimed: float
    lower: float
    lower_gaussian: float
    delta: float
    confidence: float
    canaries: int
    guesses: tuple[int, ...]
    num_correct: tuple[int, ...]
    refuted: bool
    flags: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The words "consistent with the claim", or "REFUTED"."""
        return "REFUTED" if self.refuted else "consistent with the claim"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"verdict": self.verdict, "level": 1 - self.confidence, **asdict(self), "flags": list(self.flags)}


def one_run(
    train: Callable[[Batch], Score],
    data: Batch,
    canaries: Batch,
    claim: Mechanism | Sequence[Mechanism],
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
) -> OneRun:
    """Train once on `data` and about half of the `canaries`, batches that are alike, and guess which half.

    ``train(batch)`` trains as `claim` says and returns how to score the examples of a batch: by the trained model, or
    by the releases. The canaries with the highest scores are guessed to be in, those with the lowest to be out; how
    many is fixed beforehand, in four sizes that share the level. `seed` decides the coins only.

    **Formal guarantees.** If `claim` holds, `lower` is above its epsilon, or `refuted` is true, with a probability of
    at most 1 - `confidence`. For `lower_gaussian` this needs a Gaussian trade-off. The half of the canaries that is in
    must not change the claim: the rate is fixed beforehand, not computed from the number of rows.

    >>> from noisette import make_private
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> def train(batch):
    ...     private = make_private(torch.nn.Linear(300, 1, bias=False), lambda model, x: model(x)[:, 0], batch, claim)
    ...     released = private.step().values.float()
    ...     return lambda batch: batch @ released
    >>> claim = Mechanism(L2(dim=300), Gaussian(scale=1.0), rate=1.0, steps=1)
    >>> one_run(train, torch.zeros(1, 300), torch.eye(300), claim, seed=1).verdict
    'consistent with the claim'
    """
    m = size(canaries)
    if m < 10:
        raise InvalidInput(f"{m} canaries are too few to be guessed.", hint="give at least 10")
    if kind(canaries) != kind(data):
        raise InvalidInput(
            "the canaries are unlike the examples.", hint="give them the same structure, shapes and types"
        )
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence is {confidence!r}, outside (0, 1).", hint="0.95 is usual")
    mechanisms = to_mechanism_tuple(claim)
    promise = guarantee(mechanisms, delta).with_flags(*["reproducible"] * (seed is not None))
    claimed = promise.epsilon
    curve = tradeoff(mechanisms)
    coins = torch.from_numpy(Generator(seed, purpose="coins").uniforms(m) <= 0.5)
    score = train(joined([data, change(canaries, lambda part: part[coins.to(part.device)])]))
    scores = score(canaries).detach().double().cpu().numpy()
    if scores.shape != (m,):
        raise InvalidInput(
            f"scores have shape {scores.shape}, not one for each of {m} canaries.",
            hint="train must return a function of a batch with one score for each example",
        )
    level = (1 - confidence) / len(_SHARES)
    # a tie is broken at random: canaries stand in no order that tells of their coins
    order = np.lexsort((Generator(seed, purpose="ties").uniforms(m), scores))
    entered = coins.numpy()[order]
    guesses = tuple(m if share == 1 else 2 * max(1, round(share * m / 2)) for share in _SHARES)
    right = tuple(_right(entered, size) for size in guesses)
    pairs = tuple(zip(guesses, right, strict=True))

    def allowed(false_positive: float) -> float:
        return float(curve.false_negative(min(max(false_positive, 0.0), 1.0)))

    lower = max(epsilon_lower(m, r, v, delta, level) for r, v in pairs)
    gaussian = max(epsilon_of_gaussian(gaussian_lower(m, r, v, level), delta) for r, v in pairs)
    refuted = lower > claimed or any(too_many(allowed, m, r, v, level) for r, v in pairs)
    return OneRun(claimed, lower, gaussian, delta, confidence, m, guesses, right, refuted, promise.flags)


def _right(entered: Any, guesses: int) -> int:
    """Right guesses when the highest half of them are called in and the lowest out; `entered` (m,), by rising score."""
    lowest = guesses // 2
    return int(np.sum(~entered[:lowest]) + np.sum(entered[len(entered) - (guesses - lowest) :]))
