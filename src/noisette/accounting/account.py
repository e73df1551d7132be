"""One question to any accountant: what do these mechanisms promise?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from typing import cast

from noisette._spec import positive, whole
from noisette.accounting import _float_error, base
from noisette.accounting._corrections import Correction, epsilon_after_correction
from noisette.accounting._truncation import truncation_probability, untruncated
from noisette.accounting.best_of import BestOf, Expenditure, component_mechanisms, to_expenditure
from noisette.accounting.pld import privacy_losses
from noisette.accounting.pure import pure_epsilon, refuse_unbounded
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import ADJACENCY, COVERED, REAL, Guarantee, Mechanism, Mechanisms, mechanisms_hash, privacy_unit
from noisette.sampling import EXAMPLE

__all__ = ["check_delta", "epsilon", "epsilon_as_run", "guarantee", "guarantees"]

_ROUNDED_DOWN = Context(prec=1, rounding=ROUND_FLOOR)
_NEAR = 20  # numbers of steps further apart than this, composed at once, would cost each other digits


def check_delta(delta: float, examples: int | None = None, of: str = EXAMPLE) -> float:
    """`delta` as a float in [0, 1), and below 1/examples where that number is known; `of` says what they are."""
    if isinstance(delta, int | float) and not isinstance(delta, bool) and delta == 0:
        return 0.0
    value = positive("delta", delta, hint="choose delta well below 1 / examples, like 1e-5; 0 for bounded losses")
    if value >= 1:
        raise InvalidInput(f"delta is {value!r}, not below 1.", hint="choose delta well below 1 / examples, like 1e-5")
    if examples is not None and value >= 1 / examples:
        raise InvalidInput(
            f"delta is {value!r}, at least 1/{examples}: publishing one whole {of} would pass as private.",
            hint=f"choose delta below {float(_ROUNDED_DOWN.divide(Decimal(1), Decimal(examples))):g}",
        )
    return value


def epsilon(mechanisms: Expenditure, delta: float, accountant: str = "pld") -> float:
    """The epsilon of mechanisms, infinite where it is above what floats can hold or cannot be told."""
    return epsilon_as_run(mechanisms, delta, *_asked(mechanisms, accountant))[0]


def _asked(mechanisms: Expenditure, accountant: str) -> tuple[Callable[[float], float], Correction]:
    """The epsilon of ideal runs at any delta, by an accountant, and what it leaves out."""
    knows = base.known(accountant).cuts
    told, left_out = (mechanisms, 0.0) if knows else (untruncated(mechanisms), truncation_probability(mechanisms))
    chosen, given = base.accountant(accountant, told), cast("Mechanisms", told)  # with searches if it takes them
    return lambda left: chosen.epsilon(given, left), Correction(left_out)


def epsilon_as_run(
    mechanisms: Expenditure, delta: float, asked: Callable[[float], float], left_out: Correction, size: int = 1
) -> tuple[float, float | None]:
    """The epsilon of mechanisms as they are run, for `size` examples at once, and how much of it is for floats.

    `asked` gives that of ideal runs at any delta above zero, but for what is `left_out`. None stands for real numbers
    only.
    """
    if not any(mechanism.steps for mechanism in mechanisms):
        return 0.0, 0.0

    def ideal(left: float) -> float:
        found = asked(left) if left > 0 else math.inf
        # where there is no delta, or what is asked cannot tell, the largest loss that any outcome has holds too
        return found if found < math.inf else size * pure_epsilon(mechanisms)

    real = epsilon_after_correction(left_out, delta, ideal) if delta > 0 else ideal(0.0)
    if not 0 <= real < math.inf:
        return math.inf, None
    floats = _float_error.addition(mechanisms, delta, real) if delta > 0 else None  # which floats take a share of
    value = math.inf if floats is None else epsilon_after_correction(left_out + floats, delta, ideal)
    return (value, max(0.0, value - real)) if value < math.inf else (real, None)


def guarantee(
    mechanisms: Mechanism | BestOf | Sequence[Mechanism | BestOf],
    delta: float,
    accountant: str = "pld",
    *,
    examples: int | None = None,
) -> Guarantee:
    """What a mechanism or a search, or several in order, promises at `delta`.

    `examples` is the public number of examples, or of units where these are drawn: a delta of 1/examples or more is
    refused. Where clipping by `L2` leaves the dimension open, the guarantee is for whatever model: what floats cost is
    that of 2^30 parameters. Encoders by ranks need theirs.

    **Formal guarantees.** For certified noises epsilon is an upper bound, with quadrature, truncation and rounding
    errors on the safe side; otherwise the guarantee says "estimate". Where its `arithmetic` is "covered", that holds
    for the floats that are drawn, added and released, given gradients that are functions of one example each.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> print(guarantee(Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=256 / 60000, steps=14062), delta=1e-5))
    epsilon = 2.382 at delta = 1e-05
    """
    spending = to_expenditure(mechanisms)
    delta = check_delta(delta, examples, privacy_unit(component_mechanisms(spending)))
    return _promise(spending, *epsilon_as_run(spending, delta, *_asked(spending, accountant)), delta, accountant)


def guarantees(
    mechanism: Mechanism, steps: Sequence[int], delta: float, *, examples: int | None = None
) -> dict[int, Guarantee]:
    """What `mechanism` promises at `delta` after each of several numbers of `steps`, composed at once.

    Each holds as that of `guarantee` does, and agrees with it to a few parts in ten million.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> found = guarantees(Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=0.01, steps=300), [100, 200, 300], delta=1e-5)
    >>> [f"{promise.epsilon:.3f}" for promise in found.values()]
    ['0.550', '0.721', '0.858']
    """
    delta = check_delta(delta, examples, mechanism.sampling.unit)
    left, found = sorted({whole("steps", count, least=1) for count in steps}), {}
    while left:
        near = [count for count in left if count <= _NEAR * left[0]]
        for count, losses in zip(near, privacy_losses(mechanism, near), strict=True):
            spent = (mechanism.replace(steps=count),)
            found[count] = _promise(spent, *epsilon_as_run(spent, delta, losses.epsilon, Correction()), delta, "pld")
        left = left[len(near) :]
    return found


def _promise(mechanisms: Expenditure, value: float, floats: float | None, delta: float, accountant: str) -> Guarantee:
    if not 0 <= value < math.inf:
        if delta == 0:
            for one in mechanisms:
                first = one.pieces[0] if isinstance(one, BestOf) else one
                refuse_unbounded(first.noise, one.trials if isinstance(one, BestOf) else None)
        cut = truncation_probability(mechanisms) > 0 and epsilon(untruncated(mechanisms), delta, accountant) < math.inf
        raise Unaccountable(
            f"no finite epsilon could be shown at delta = {delta:g}.",
            hint="batches are cut too often: raise max_batch, or take the accountant pld"
            if cut
            else "the noise is far too small for this many steps, or delta too small: raise the scale",
        )
    return Guarantee(
        epsilon=value,
        delta=delta,
        accountant=accountant,
        kind="bound" if all(piece.noise.certified for piece in component_mechanisms(mechanisms)) else "estimate",
        mechanism_hash=mechanisms_hash(mechanisms),
        basis=base.known(accountant).bound_method(cast("Mechanisms", mechanisms))
        if delta > 0
        else "largest loss of any outcome",
        adjacency=ADJACENCY[privacy_unit(component_mechanisms(mechanisms))],
        arithmetic=REAL if floats is None else COVERED,
        arithmetic_epsilon=floats or 0.0,
    )
