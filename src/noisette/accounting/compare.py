"""Which noise is the best buy: every law at the same epsilon, and what it does to a released coordinate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from noisette.accounting.calibrate import calibrate
from noisette.mechanism import Mechanism
from noisette.noise import Cauchy, Gaussian, Laplace, Logistic, Noise, Sech, StudentT, VarianceGamma

__all__ = ["DEFAULT_NOISES", "Row", "compare", "verdict"]

DEFAULT_NOISES: tuple[Noise, ...] = (
    Gaussian(),
    StudentT(df=9),
    StudentT(df=3),
    Laplace(),
    Logistic(),
    Sech(),
    VarianceGamma(shape=2),
    Cauchy(),
)
"""The paper's six laws and two more."""


@dataclass(frozen=True)
class Row:
    """One noise at the common epsilon; errors are per coordinate of the released sum.

    `noise` is its text, `law` the same without the scale. `l1` is the mean absolute error, or the median absolute one
    where the mean is infinite; `l2` and `std` are the root mean square (None where infinite); `effective_sigma` is
    I^(-1/2), what an ideal denoiser of small shifts leaves. `flags` qualify the epsilon that it was calibrated to.
    """

    noise: str
    law: str
    scale: float
    std: float | None
    l1: float
    l2: float | None
    effective_sigma: float | None
    median: bool
    flags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self) | {"flags": list(self.flags)}


def compare(
    mechanism: Mechanism, epsilon: float, delta: float, noises: Sequence[Noise] = DEFAULT_NOISES
) -> Iterator[Row]:
    """Each of `noises` in the place of the mechanism's own, calibrated to (epsilon, delta), one row at a time.

    >>> from noisette.encoders import Ranked
    >>> mechanism = Mechanism(Ranked(dim=1), Gaussian(), rate=1.0, steps=1)
    >>> [round(row.l2, 2) for row in compare(mechanism, 1.0, 1e-5, [Gaussian(), Laplace()])]
    [3.73, 1.41]
    """
    for noise in noises:
        yield _row(calibrate(mechanism.replace(noise=noise), epsilon, delta).noise)


def _row(noise: Noise) -> Row:
    median = not math.isfinite(noise.mean_abs)
    std = noise.std if math.isfinite(noise.std) else None
    fisher = noise.fisher_information
    return Row(
        noise=repr(noise),
        law=_without_scale(noise),
        scale=noise.known_scale,
        std=std,
        l1=float(noise.magnitude(0.5)) if median else noise.mean_abs,
        l2=std,
        effective_sigma=1 / math.sqrt(fisher) if math.isfinite(fisher) else None,
        median=median,
        flags=() if noise.certified else ("estimate",),
    )


def _without_scale(noise: Noise) -> str:
    text = repr(noise.replace(scale=None))
    return text.replace(", scale=None", "").replace("(scale=None)", "").replace(".0)", ")")


def verdict(rows: Sequence[Row]) -> tuple[Row, str]:
    """The row of the least mean square error, and in plain words how it compares with Gaussian noise."""
    finite = [row for row in rows if row.l2 is not None]
    best = min(finite or rows, key=lambda row: row.l2 if row.l2 is not None else row.l1)
    gaussian = next((row for row in rows if row.noise.startswith("Gaussian")), None)
    if gaussian is None or gaussian.l2 is None or best.l2 is None:
        return best, f"{best.law} has the least error."
    if best is gaussian:
        return best, "Gaussian noise has the least mean square error: with many coordinates no law can beat it."
    gain = 1 - best.l2 / gaussian.l2
    if gain < 0.01:
        return best, f"{best.law} ties with Gaussian noise ({gain:.1%} less mean square error)."
    return best, f"{best.law} beats Gaussian noise: {gain:.1%} less error for the same epsilon."
