"""One question to any accountant: what does this run promise?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from noisette.account import base
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import Guarantee, Mechanism, Run, as_run, run_hash
from noisette.spec import positive

__all__ = ["check_delta", "epsilon", "guarantee"]


def check_delta(delta: float, examples: int | None = None) -> float:
    """`delta` as a float in (0, 1), and below 1/examples where that number is known."""
    value = positive("delta", delta, hint="choose delta well below 1 / examples, like 1e-5")
    if value >= 1:
        raise InvalidInput(f"delta is {delta!r}, not below 1.", hint="choose delta well below 1 / examples, like 1e-5")
    if examples is not None and value >= 1 / examples:
        raise InvalidInput(
            f"delta is {delta!r}, at least 1/{examples}: publishing one whole example would pass as private.",
            hint=f"choose delta below {1 / examples:.1g}",
        )
    return value


def epsilon(run: Run, delta: float, accountant: str = "pld") -> float:
    """The epsilon of a run, infinite where it is above what floats can hold or cannot be told."""
    known = base.accountant(accountant, run)
    value = known.epsilon(run, delta) if any(mechanism.steps for mechanism in run) else 0.0
    return value if value >= 0 else math.inf


def guarantee(
    mechanisms: Mechanism | Sequence[Mechanism],
    delta: float,
    accountant: str = "pld",
    *,
    examples: int | None = None,
) -> Guarantee:
    """What a mechanism, or several in order, promises at `delta`.

    `examples` is the public number of examples, where known: a delta of 1/examples or more is refused.

    **Formal guarantees.** For certified noises epsilon is an upper bound, with quadrature, truncation and rounding
    errors on the safe side; otherwise the guarantee says "estimate".

    >>> from noisette import L2, Gaussian
    >>> print(guarantee(Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=256 / 60000, steps=14062), delta=1e-5))
    epsilon = 2.382 at delta = 1e-05
    """
    run = as_run(mechanisms)
    delta = check_delta(delta, examples)
    value = epsilon(run, delta, accountant)
    if not math.isfinite(value):
        raise Unaccountable(
            f"no finite epsilon could be shown at delta = {delta:g}.",
            hint="the noise is far too small for this many steps, or delta too small: raise the scale",
        )
    return Guarantee(
        epsilon=value,
        delta=delta,
        accountant=accountant,
        kind="bound" if all(mechanism.noise.certified for mechanism in run) else "estimate",
        mechanism_hash=run_hash(run),
        basis=base.accountant(accountant, run).basis(run),
    )
