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

from noisette.account import Tradeoff, tradeoff
from noisette.audit.bounds import Array, ks_p_value, upper_bound
from noisette.audit.canary import Neighbours, Separation, in_image, neighbours, releases
from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.mechanism import Mechanism
from noisette.noise import Noise
from noisette.spec import real, whole

__all__ = ["Audit", "Point", "audit"]

RATES = (0.002, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""False-positive rates that thresholds aim at."""

_CLEAR, _PLAIN = 9.0, 100.0  # separations: a Gaussian's mu of 3, where a test sees most, and of 10, where it never errs
_TESTS = 3 * (2 * len(RATES) * 2 + 1)  # regimes, directions, rates and bounds, and a KS test for each regime
_MOST_RESIDUALS = 2**19
_MOST_AT_ONCE = 2**20
_SIMULATED = 2**17, 1000, 4000  # values in all, fewest and most draws of the claimed law

Progress = Callable[[int, int], None]


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
    mechanism's own dimension, and the noise is its own law. `progress` is called with steps done and steps in all.

    **Formal guarantees.** A mechanism that keeps its claim is refuted with a probability of at most `level`. A passed
    audit proves nothing.

    >>> from noisette import Gaussian, L2
    >>> audit(Mechanism(L2(dim=20), Gaussian(scale=1.0), rate=0.1, steps=100), steps=100, seed=0).verdict
    'consistent with the claim'
    """
    began = time.monotonic()
    steps = whole("steps", steps, least=50)
    if not 0 < real("level", level) < 1:
        raise InvalidInput(f"level is {level!r}, outside (0, 1).", hint="1e-4 allows one false alarm in 10,000 audits")
    share = level / _TESTS
    quantiles, simulation = _quantiles(mechanism.noise), Generator(seed, purpose="simulation")
    points: list[Point] = []
    claimed: dict[str, Tradeoff] = {}
    residuals: dict[str, float] = {}
    reasons: list[str] = []
    for number, regime in enumerate(_regimes(mechanism, seed)):
        claimed[regime.name] = tradeoff(regime.mechanism)
        if not in_image(regime.pair.shift, regime.mechanism.encoder.image):
            reasons.append(f"{regime.name}: the canary's encoding lies outside the encoder's image")
        sides = []
        for which, examples in enumerate((regime.pair.without, regime.pair.with_canary)):
            own = None if seed is None else 8 * seed + 2 * number + which
            ticks = _ticks(progress, (2 * number + which) * steps, 6 * steps)
            sides.append(_run(regime, examples, which == 1, steps, own, ticks))
        thresholds = _simulate(regime, quantiles, simulation)
        found = list(_points(regime.name, sides[0].scores, sides[1].scores, thresholds, claimed[regime.name], share))
        points += found
        under = sum(point.refutes for point in found)
        if under:
            reasons.append(f"{regime.name}: {under} of {len(found)} measured points lie under the claimed curve")
        law = regime.mechanism.noise.replace(scale=1.0)
        residuals[regime.name] = ks_p_value(np.concatenate([side.residuals for side in sides]), law.cdf)
        if residuals[regime.name] < share:
            reasons.append(f"{regime.name}: release minus sum does not follow {regime.mechanism.noise!r}")
    return Audit(level, tuple(points), claimed, residuals, tuple(reasons), time.monotonic() - began)


def _regimes(mechanism: Mechanism, seed: int | None) -> Iterator[_Regime]:
    single = mechanism.replace(steps=1, noise=mechanism.noise.replace(scale=mechanism.noise.known_scale))
    draw = Generator(seed, purpose="canary")
    separation = Separation(mechanism.noise)
    pair = neighbours(single, draw, flip=True)
    clear = mechanism.noise.replace(scale=separation.scale_for(pair.shift, _CLEAR))
    yield _Regime("every example", single.replace(rate=1.0, noise=clear), pair, _always)
    pair = neighbours(single, draw, flip=False)
    plain = mechanism.noise.replace(scale=separation.scale_for(pair.shift, _PLAIN))
    yield _Regime("tiny noise", single.replace(rate=0.1, noise=plain), pair, _if_seen)
    yield _Regime("as set", single, pair, _always if single.rate == 1 else None)


def _always(scores: Array) -> Array:
    return np.ones(len(scores))


def _if_seen(scores: Array) -> Array:
    return np.asarray(scores > 0, dtype=np.float64)


def _ticks(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    return (lambda _: None) if progress is None else (lambda done: progress(before + done, total))


def _run(
    regime: _Regime, examples: Any, canary: bool, steps: int, seed: int | None, tick: Callable[[int], None]
) -> _Side:
    """Take the steps, and keep of each release its score and some of its residuals."""
    pair, noise = regime.pair, regime.mechanism.noise
    dim = len(pair.shift)
    block = max(1, min(steps, _MOST_AT_ONCE // dim))
    kept = max(1, min(dim, _MOST_RESIDUALS // (2 * steps)))
    scores, residuals = [], []
    taken = releases(regime.mechanism, examples, steps, seed)
    for start in range(0, steps, block):
        rows = np.stack([next(taken) for _ in range(min(block, steps - start))]) - pair.base
        scores.append(_scores(noise, rows, pair.shift))
        if canary and regime.present is not None:
            rows = rows - regime.present(scores[-1])[:, None] * pair.shift
        if not canary or regime.present is not None:
            # another stretch of coordinates in every step, so that all of them are looked at
            columns = (np.arange(start, start + len(rows))[:, None] * kept + np.arange(kept)) % dim
            residuals.append(np.take_along_axis(rows, columns, axis=1).ravel() / noise.known_scale)
        tick(start + len(rows))
    return _Side(np.concatenate(scores), np.concatenate(residuals) if residuals else np.empty(0))


def _scores(noise: Noise, rows: Array, shift: Array) -> Array:
    """Log-likelihood ratios (n,) of rows (n, d) with and without the shift.

    Sampling makes it ln(1 - q + q e^score), which rises with the score: the same tests, by the same thresholds.
    """
    return np.asarray((noise.log_prob(rows - shift) - noise.log_prob(rows)).sum(axis=1))


def _quantiles(noise: Noise) -> tuple[Array, Array]:
    """Log odds of a standard draw being smaller, and its magnitude there: a table for `_simulate`."""
    odds = np.linspace(-36.0, 36.0, 721)
    return odds, noise.replace(scale=1.0).magnitude(1 / (1 + np.exp(odds)))


def _simulate(regime: _Regime, quantiles: tuple[Array, Array], generator: Generator) -> tuple[Array, Array]:
    """Scores without and with the canary, were the claim true: thresholds come from here, never from what is tested.

    The draws are quantiles of the accounting half of the law: the half that samples has no part in them.
    """
    noise, shift = regime.mechanism.noise, regime.pair.shift
    total, fewest, most = _SIMULATED
    count = max(fewest, min(most, total // len(shift)))
    block = max(1, min(count, _MOST_AT_ONCE // len(shift)))
    scores: tuple[list[Array], list[Array]] = ([], [])
    for start in range(0, count, block):
        rows = min(block, count - start)
        for chance, kept in zip((0.0, regime.mechanism.rate), scores, strict=True):
            signs, u = generator.signed(rows * len(shift))
            draws = (noise.known_scale * signs * np.interp(np.log1p(-u) - np.log(u), *quantiles)).reshape(rows, -1)
            takes_part = 1.0 * (generator.uniforms(rows) <= chance)
            kept.append(_scores(noise, draws + takes_part[:, None] * shift, shift))
    return np.concatenate(scores[0]), np.concatenate(scores[1])


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
