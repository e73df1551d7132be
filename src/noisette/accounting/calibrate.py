"""Calibration: the mechanism that just keeps a budget, always on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from noisette._spec import positive
from noisette.accounting._pmf import LARGEST_LOSS
from noisette.accounting.account import check_delta, epsilon
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import NumTrials
from noisette.accounting.pure import refuse_unbounded
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import Mechanism

__all__ = ["calibrate"]

TOLERANCE = 1e-3
"""How far below the target the epsilon that is reached may lie, relative to it."""

_MOST_TRIES = 60


def calibrate(
    mechanism: Mechanism,
    epsilon: float,
    delta: float,
    *,
    field: str = "scale",
    accountant: str = "pld",
    examples: int | None = None,
    trials: NumTrials | None = None,
) -> Mechanism:
    """A copy of `mechanism` whose `field` ("scale", "steps" or "rate") makes it spend at most `epsilon` at `delta`.

    The scale and the rate come within 0.1% of the target epsilon; the steps are the most that the budget allows. With
    `trials`, what keeps the budget is to make so many runs of it and to publish the best one.

    >>> from noisette import Mechanism
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(), rate=0.01, steps=100)
    >>> round(calibrate(mechanism, epsilon=1.0, delta=1e-5).noise.scale, 2)
    0.9
    """
    target = positive("epsilon", epsilon, hint="give the budget as a positive number")
    if target > LARGEST_LOSS / 2:
        raise InvalidInput(f"epsilon is {target:g}, which hides nothing.", hint="budgets of interest are below 50")
    delta = check_delta(delta, examples)
    if field not in _FIELDS:
        raise InvalidInput(f"field is {field!r}, not one that can be calibrated.", hint="choose scale, steps or rate")
    if delta == 0:
        refuse_unbounded(mechanism.noise, trials)
    return _FIELDS[field](_Problem(mechanism, target, delta, accountant, trials))


@dataclass(frozen=True)
class _Problem:
    mechanism: Mechanism
    target: float
    delta: float
    accountant: str
    trials: NumTrials | None

    def with_scale(self, scale: float) -> Mechanism:
        return self.mechanism.replace(noise=self.mechanism.noise.replace(scale=scale))

    def spent(self, mechanism: Mechanism) -> float:
        spent = mechanism if self.trials is None or mechanism.steps == 0 else BestOf((mechanism,), self.trials)
        return epsilon((spent,), self.delta, self.accountant)


def _scale(problem: _Problem) -> Mechanism:
    if problem.mechanism.steps == 0:
        raise InvalidInput(
            "a mechanism of no steps spends nothing at any scale.", hint="give steps, or calibrate those"
        )
    # a first guess from the high-dimensional limit, where every law acts like a Gaussian of the same Fisher information
    unit = problem.mechanism.noise.replace(scale=1.0)
    fisher = min(unit.fisher_information, 100.0)
    length = problem.mechanism.encoder.image.norm
    guess = (
        length
        * math.sqrt(fisher)
        * (1 + 4 * problem.mechanism.rate * math.sqrt(problem.mechanism.steps))
        / problem.target
    )
    least = length / unit.domain.shifts[1]  # below, the accountant refuses: more than any budget

    def spent(scale: float) -> float:
        return problem.spent(problem.with_scale(scale)) if scale >= least else math.inf

    return problem.with_scale(_solve(spent, problem.target, guess))


def _rate(problem: _Problem) -> Mechanism:
    def spent(inverse: float) -> float:
        return problem.spent(problem.mechanism.replace(rate=1 / inverse)) if inverse >= 1 else math.inf

    problem.mechanism.noise.known_scale  # noqa: B018 - raises where it is open
    if spent(1.0) <= problem.target:
        return problem.mechanism.replace(rate=1.0)
    return problem.mechanism.replace(rate=1 / _solve(spent, problem.target, 1 / problem.mechanism.rate))


def _steps(problem: _Problem) -> Mechanism:
    def spent(steps: int) -> float:
        return problem.spent(problem.mechanism.replace(steps=steps))

    problem.mechanism.noise.known_scale  # noqa: B018 - raises where it is open
    low, high = 0, max(1, problem.mechanism.steps)
    while spent(high) <= problem.target:
        low, high = high, 2 * high
        if high > 10**9:
            raise Unaccountable("more than a billion steps fit the budget.", hint="lower the noise or the budget")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(middle) <= problem.target else (low, middle)
    if low == 0:
        raise Unaccountable("not even one step fits the budget.", hint="raise the noise scale or epsilon")
    return problem.mechanism.replace(steps=low)


def _solve(spent: Callable[[float], float], target: float, guess: float) -> float:
    """The x with spent(x) just below `target`, for a falling `spent`: bracket, then false position in logarithms."""
    low = high = guess  # spent(low) > target >= spent(high)
    at_low = at_high = spent(guess)
    tries = 0
    while at_low <= target or at_high > target:
        tries += 1
        if tries > _MOST_TRIES or not 1e-12 * guess < low <= high < 1e12 * guess:
            raise Unaccountable("no value reaches the budget.", hint="check epsilon, delta, rate and steps")
        step = 1.3 if tries < 8 else 4.0
        if at_high > target:
            low, at_low = high, at_high
            high *= step
            at_high = spent(high)
        else:
            high, at_high = low, at_low
            low /= step
            at_low = spent(low)
    aim = target * (1 - TOLERANCE / 3)
    for tries in range(_MOST_TRIES):
        if at_high >= target * (1 - TOLERANCE):
            return high
        if high <= low * (1 + 1e-9):
            raise Unaccountable(
                "epsilon jumps from below the budget to beyond it, with nothing close in between.",
                hint=f"ask for a budget of {at_high:.4g}",
            )
        share = 0.5
        if tries % 4 != 3 and math.isfinite(at_low) and at_high > 0:  # every fourth step halves, so that it must end
            share = math.log(at_low / aim) / math.log(at_low / at_high)
        middle = low * (high / low) ** min(max(share, 0.02), 0.999)
        value = spent(middle)
        low, at_low, high, at_high = (middle, value, high, at_high) if value > target else (low, at_low, middle, value)
    raise Unaccountable("calibration did not settle.", hint="please report this mechanism")


_FIELDS: dict[str, Callable[[_Problem], Mechanism]] = {"scale": _scale, "steps": _steps, "rate": _rate}
