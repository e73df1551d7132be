"""The likelihood-ratio audit of one private step, against the accountant's whole trade-off curve.

Two data sets differ in one canary. The real step runs many times on each, and the best test there is, the likelihood
ratio, tells them apart. If it errs less than the accountant says that any test must, the claim is refuted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from noisette._spec import real, whole
from noisette.accounting import Tradeoff, tradeoff
from noisette.audit._canary import Neighbours, Separation, in_image, neighbours, releases
from noisette.audit._intervals import Array, ks_p_value, upper_bound
from noisette.audit._likelihood_ratio import Statistic
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.random import Generator

__all__ = ["Attack", "Audit", "Point", "attacks", "audit"]

RATES = (0.002, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""False-positive rates that thresholds aim at."""

_CLEAR, _PLAIN = 9.0, 100.0  # separations: a Gaussian's mu of 3, where a test sees most, and of 10, where it never errs
_TESTS = 3 * (2 * len(RATES) * 2 + 1)  # regimes, directions, rates and bounds, and a KS test for each regime
_MOST_RESIDUALS = 2**19
_MOST_AT_ONCE, _MOST_STEPS = 2**17, 500  # values, and steps between two signs of progress

Progress = Callable[[int, int], None]


_LONGEST, _WIDEST = 10**7, 10**8  # steps and coordinates, beyond which an audit would not end


@dataclass(frozen=True)
class Point:
    """One test of one regime: the error rates that were measured, bounds above them, and what is claimed.

    `direction` "add" tests for the canary, "remove" for its absence. `claimed` is the least false-negative rate that
    the claim allows at `false_positive_bound`; the point refutes the claim when `false_negative_bound` is below it.
    """

    regime: str
    direction: str
    rate: float
    false_positive: float
    false_negative: float
    false_positive_bound: float
    false_negative_bound: float
    claimed: float

    @property
    def refutes(self) -> bool:
        """Whether the measured point lies under the claimed curve, with all its error bars."""
        return self.false_negative_bound < self.claimed


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found. An honest mechanism is refuted with a probability of at most `level`.

    `points` are the measured points, `claimed` the accountant's curve of each regime, `residuals` the p-value of the
    noise in each regime, `reasons` all that contradicts the claim.
    """

    level: float
    points: tuple[Point, ...]
    claimed: dict[str, Tradeoff]
    residuals: dict[str, float]
    reasons: tuple[str, ...]
    seconds: float

    @property
    def refuted(self) -> bool:
        """Whether anything contradicts the claim."""
        return bool(self.reasons)

    @property
    def verdict(self) -> str:
        """The words "consistent with the claim", or "REFUTED"."""
        return "REFUTED" if self.refuted else "consistent with the claim"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; curves as lists of [false positive, false negative]."""
        rates = np.linspace(0.0, 1.0, 101)
        curves = {
            name: np.column_stack([rates, curve.false_negative(rates)]).tolist() for name, curve in self.claimed.items()
        }
        points = [asdict(point) | {"refutes": point.refutes} for point in self.points]
        return {
            "verdict": self.verdict,
            "level": self.level,
            "points": points,
            "claimed": curves,
            "residuals": self.residuals,
            "reasons": list(self.reasons),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False)
class Attack:
    """What the steps of one regime showed; `residuals` is the p-value of the noise, `reasons` contradict the claim."""

    regime: str
    points: tuple[Point, ...]
    claimed: Tradeoff
    residuals: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Regime:
    """Settings under which the step is run."""

    name: str
    mechanism: Mechanism
    pair: Neighbours
    present: Callable[[Array], Array] | None  # from scores, whether the canary took part; None where nobody can know


@dataclass(frozen=True, eq=False)
class _Side:
    """What the steps on one data set showed: scores (n,), and residuals over the scale."""

    scores: Array
    residuals: Array


def audit(
    mechanism: Mechanism,
    *,
    steps: int = 2000,
    level: float = 1e-4,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack the real step of `mechanism`, `steps` times with and without a canary in each of three regimes.

    "every example": rate 1, noise at a scale where the test sees most. "tiny noise": rate 0.1, so that every batch
    shows who was in it. "as set": the mechanism itself. In all three the steps are those of `make_private`, at the
    mechanism's own dimension, and the noise is its own law. Of a mechanism for units the canary is a whole unit of many
    examples. `progress` is called with steps done and steps in all.

    **Formal guarantees.** A mechanism that keeps its claim is refuted with a probability of at most `level`. A passed
    audit proves nothing.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> audit(Mechanism(L2(dim=20), Gaussian(scale=1.0), rate=0.1, steps=100), steps=100, seed=0).verdict
    'consistent with the claim'
    """
    began = time.monotonic()
    found = list(attacks(mechanism, steps=steps, level=level, seed=seed, progress=progress))
    return Audit(
        level=level,
        points=tuple(point for attack in found for point in attack.points),
        claimed={attack.regime: attack.claimed for attack in found},
        residuals={attack.regime: attack.residuals for attack in found},
        reasons=tuple(f"{attack.regime}: {reason}" for attack in found for reason in attack.reasons),
        seconds=time.monotonic() - began,
    )


def attacks(
    mechanism: Mechanism, *, steps: int, level: float, seed: int | None = None, progress: Progress | None = None
) -> Iterator[Attack]:
    """The attacks that an audit consists of, regime by regime: one with a reason decides the verdict."""
    steps = whole("steps", steps, least=50, most=_LONGEST)
    if mechanism.encoder.known_dim > _WIDEST:
        raise InvalidInput(
            f"an audit takes vectors of {mechanism.encoder.dim} coordinates in hand, one by one.",
            hint=f"audit the same encoder with a dim of at most {_WIDEST}",
        )
    if not 0 < real("level", level) < 1:
        raise InvalidInput(f"level is {level!r}, outside (0, 1).", hint="1e-4 allows one false alarm in 10,000 audits")
    statistic, simulation = Statistic(mechanism.noise), Generator(seed, purpose="simulation")
    for number, regime in enumerate(_regimes(mechanism, seed)):
        sides = []
        for which, examples in enumerate((regime.pair.without, regime.pair.with_canary)):
            own = None if seed is None else 8 * seed + 2 * number + which
            ticks = _ticks(progress, (2 * number + which) * steps, 6 * steps)
            sides.append(_run(regime, statistic, examples, which == 1, steps, own, ticks))
        yield _judged(regime, statistic, sides, simulation, level / _TESTS)


def _judged(regime: _Regime, statistic: Statistic, sides: list[_Side], simulation: Generator, share: float) -> Attack:
    """Compare what was seen with the claim, each test at a level of `share`."""
    mechanism, shift = regime.mechanism, regime.pair.shift
    claimed = tradeoff(mechanism)
    simulated = statistic.simulated(shift, mechanism.noise.known_scale, mechanism.rate, simulation)
    points = tuple(_points(regime.name, sides[0].scores, sides[1].scores, simulated, claimed, share))
    residuals = ks_p_value(np.concatenate([side.residuals for side in sides]), mechanism.noise.replace(scale=1.0).cdf)
    reasons = []
    if not in_image(shift, mechanism.encoder.image):
        reasons.append("the canary's encoding lies outside the encoder's image")
    under = sum(point.refutes for point in points)
    if under:
        reasons.append(f"{under} of {len(points)} measured points lie under the claimed curve")
    if residuals < share:
        reasons.append(f"release minus sum does not follow {mechanism.noise!r}")
    return Attack(regime.name, points, claimed, residuals, tuple(reasons))


def _regimes(mechanism: Mechanism, seed: int | None) -> Iterator[_Regime]:
    single = mechanism.replace(steps=1, noise=mechanism.noise.replace(scale=mechanism.noise.known_scale))
    draw = Generator(seed, purpose="canary")

    def at(rate: float) -> Mechanism:  # at which a cut would come about more often, and hide more, than as it is set
        return single.replace(sampling=single.sampling.untruncated().replace(rate=rate))

    separation = Separation(mechanism.noise)
    pair = neighbours(single, draw, flip=True)
    clear = mechanism.noise.replace(scale=separation.scale_for(pair.shift, _CLEAR))
    yield _Regime("every example", at(1.0).replace(noise=clear), pair, _always)
    pair = neighbours(single, draw, flip=False)
    plain = mechanism.noise.replace(scale=separation.scale_for(pair.shift, _PLAIN))
    yield _Regime("tiny noise", at(0.1).replace(noise=plain), pair, _if_seen)
    yield _Regime("as set", single, pair, _always if single.rate == 1 else None)


def _always(scores: Array) -> Array:
    return np.ones(len(scores))


def _if_seen(scores: Array) -> Array:
    return np.asarray(scores > 0, dtype=np.float64)


def _ticks(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    return (lambda _: None) if progress is None else (lambda done: progress(before + done, total))


def _run(
    regime: _Regime,
    statistic: Statistic,
    examples: Tensor,
    canary: bool,
    steps: int,
    seed: int | None,
    tick: Callable[[int], None],
) -> _Side:
    """Take the steps, and keep of each release its score and some of its residuals."""
    pair, scale = regime.pair, regime.mechanism.noise.known_scale
    dim = len(pair.shift)
    block = max(1, min(_MOST_STEPS, _MOST_AT_ONCE // dim))
    kept = max(1, min(dim, _MOST_RESIDUALS // (2 * steps)))
    scores, residuals = [], []
    taken = releases(regime.mechanism, examples, steps, seed)
    for start in range(0, steps, block):
        rows = np.stack([next(taken) for _ in range(min(block, steps - start))]) - pair.base
        scores.append(statistic.scores(rows, pair.shift, scale))
        if canary and regime.present is not None:
            rows = rows - regime.present(scores[-1])[:, None] * pair.shift
        if not canary or regime.present is not None:
            # another stretch of coordinates in every step, so that all of them are looked at
            columns = (np.arange(start, start + len(rows))[:, None] * kept + np.arange(kept)) % dim
            residuals.append(np.take_along_axis(rows, columns, axis=1).ravel() / scale)
        tick(start + len(rows))
    return _Side(np.concatenate(scores), np.concatenate(residuals) if residuals else np.empty(0))


def _points(
    regime: str, without: Array, with_canary: Array, simulated: tuple[Array, Array], claim: Tradeoff, share: float
) -> Iterator[Point]:
    n = len(without)
    for direction, null, sign in (("add", 0, 1.0), ("remove", 1, -1.0)):
        innocent, guilty = (sign * scores for scores in ((without, with_canary), (with_canary, without))[null])
        for rate in RATES:
            threshold = np.quantile(sign * simulated[null], 1 - rate)
            alarms, misses = int(np.sum(innocent > threshold)), int(np.sum(~(guilty > threshold)))
            upper = upper_bound(alarms, n, share), upper_bound(misses, n, share)
            least = float(claim.false_negative(upper[0]))
            yield Point(regime, direction, rate, alarms / n, misses / n, *upper, least)
