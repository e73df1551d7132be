"""One question to any accountant: what do these mechanisms promise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

from noisette.account import base
from noisette.account.cut import chance_of_a_cut, cut_chance, epsilon_with, uncut
from noisette.account.pld import PrivacyLoss, privacy_losses
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import ADJACENCY, Guarantee, Mechanism, Mechanisms, hash_of, unit_of
from noisette.sampling import EXAMPLE, Poisson
from noisette.search import Search, Spending, as_spending, pieces_of
from noisette.spec import positive, whole

__all__ = ["check_delta", "epsilon", "guarantee", "guarantees"]

_NEAR = 20  # numbers of steps further apart than this, composed at once, would cost each other digits


def check_delta(delta: float, examples: int | None = None, of: str = EXAMPLE) -> float:
    """`delta` as a float in (0, 1), and below 1/examples where that number is known; `of` says what they are."""
    value = positive("delta", delta, hint="choose delta well below 1 / examples, like 1e-5")
    if value >= 1:
        raise InvalidInput(f"delta is {delta!r}, not below 1.", hint="choose delta well below 1 / examples, like 1e-5")
    if examples is not None and value >= 1 / examples:
        raise InvalidInput(
            f"delta is {delta!r}, at least 1/{examples}: publishing one whole {of} would pass as private.",
            hint=f"choose delta below {1 / examples:.1g}",
        )
    return value


def epsilon(mechanisms: Spending, delta: float, accountant: str = "pld") -> float:
    """The epsilon of mechanisms, infinite where it is above what floats can hold or cannot be told."""
    chance, plain = chance_of_a_cut(mechanisms), uncut(mechanisms)
    known, given = base.accountant(accountant, plain), cast("Mechanisms", plain)  # with searches if it takes them
    if not any(mechanism.steps for mechanism in mechanisms):
        return 0.0
    value = epsilon_with(chance, delta, lambda left: known.epsilon(given, left))
    return value if value >= 0 else math.inf


def guarantee(
    mechanisms: Mechanism | Search | Sequence[Mechanism | Search],
    delta: float,
    accountant: str = "pld",
    *,
    examples: int | None = None,
) -> Guarantee:
    """What a mechanism or a search, or several in order, promises at `delta`.

    `examples` is the public number of examples, or of units where these are drawn: a delta of 1/examples or more is
    refused.

    **Formal guarantees.** For certified noises epsilon is an upper bound, with quadrature, truncation and rounding
    errors on the safe side; otherwise the guarantee says "estimate".

    >>> from noisette import L2, Gaussian
    >>> print(guarantee(Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=256 / 60000, steps=14062), delta=1e-5))
    epsilon = 2.382 at delta = 1e-05
    """
    spending = as_spending(mechanisms)
    delta = check_delta(delta, examples, unit_of(pieces_of(spending)))
    return _promise(spending, epsilon(spending, delta, accountant), delta, accountant)


def guarantees(
    mechanism: Mechanism, steps: Sequence[int], delta: float, *, examples: int | None = None
) -> dict[int, Guarantee]:
    """What `mechanism` promises at `delta` after each of several numbers of `steps`, composed at once.

    Each holds as that of `guarantee` does, and agrees with it to a few parts in ten million.

    >>> from noisette import L2, Gaussian
    >>> found = guarantees(Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=0.01, steps=300), [100, 200, 300], delta=1e-5)
    >>> [f"{promise.epsilon:.3f}" for promise in found.values()]
    ['0.550', '0.721', '0.858']
    """
    delta = check_delta(delta, examples, mechanism.sampling.of)
    plain, chance = mechanism.replace(sampling=Poisson(mechanism.rate)), cut_chance(mechanism.sampling)
    left, found = sorted({whole("steps", count, least=1) for count in steps}), {}
    while left:
        near = [count for count in left if count <= _NEAR * left[0]]
        for count, loss in zip(near, privacy_losses(plain, near), strict=True):
            value = epsilon_with(count * chance, delta, partial(_at, loss))
            found[count] = _promise((mechanism.replace(steps=count),), value, delta, "pld")
        left = left[len(near) :]
    return found


def _at(loss: PrivacyLoss, delta: float) -> float:
    return float(loss.get_epsilon_for_delta(delta))


def _promise(mechanisms: Spending, value: float, delta: float, accountant: str) -> Guarantee:
    if not 0 <= value < math.inf:
        cut = chance_of_a_cut(mechanisms) > 0 and epsilon(uncut(mechanisms), delta, accountant) < math.inf
        raise Unaccountable(
            f"no finite epsilon could be shown at delta = {delta:g}.",
            hint="batches are cut too often, which costs more than all of delta: raise most"
            if cut
            else "the noise is far too small for this many steps, or delta too small: raise the scale",
        )
    return Guarantee(
        epsilon=value,
        delta=delta,
        accountant=accountant,
        kind="bound" if all(piece.noise.certified for piece in pieces_of(mechanisms)) else "estimate",
        mechanism_hash=hash_of(mechanisms),
        basis=base.accountant(accountant, uncut(mechanisms)).basis(cast("Mechanisms", mechanisms)),
        adjacency=ADJACENCY[unit_of(pieces_of(mechanisms))],
    )
