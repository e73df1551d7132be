"""The privacy-loss accountant: tight, for any noise and any image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.accounting._best_of_price import DirectionalDivergences, best_of_divergence, pointwise_max
from noisette.accounting._pmf import Array, Pmf, connect_dots, excess
from noisette.accounting._step_divergence import Curve, step_curve
from noisette.accounting._truncation import exchanges
from noisette.accounting.base import Accountant
from noisette.accounting.best_of import BestOf, Expenditure, component_mechanisms
from noisette.accounting.composition import compose, window
from noisette.errors import MissingExtra, Unaccountable
from noisette.mechanism import Mechanism

__all__ = ["Losses", "Pld", "privacy_loss", "privacy_losses"]

_FINENESS = 40.0
_LEAST_POINTS = 4000
_MOST_TRIES = 24  # a few are enough, where there is a lattice
_MOST_POINTS = 2**21


class Pld(Accountant):
    """Privacy-loss distributions: tight, and the default."""

    name = "pld"
    supports_best_of = True
    cuts = True

    def epsilon(self, mechanisms: Expenditure, delta: float) -> float:
        return privacy_loss(mechanisms).epsilon(delta)

    def bound_method(self, mechanisms: Expenditure) -> str:
        return "; ".join(
            dict.fromkeys(step_curve(one.encoder, one.noise).basis for one in component_mechanisms(mechanisms))
        )


@dataclass(frozen=True, eq=False)
class Losses:
    """The privacy losses when an example is `removed` and when one is `added`: what holds, holds of both."""

    removed: Pmf
    added: Pmf

    def epsilon(self, delta: float) -> float:
        """The least epsilon at `delta`; infinite where there is none."""
        return max(self.removed.epsilon(delta), self.added.epsilon(delta))

    def delta(self, epsilons: Array) -> Array:
        """The least delta at each of `epsilons`."""
        return np.maximum(self.removed.delta(epsilons), self.added.delta(epsilons))

    def to_dp_accounting(self) -> Any:
        """The same as an object of dp_accounting, which can be composed with others of its kind."""
        try:
            from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415 - takes a second to import
        except ModuleNotFoundError:
            raise MissingExtra.of("dp-accounting", extra="export") from None
        sides = self.removed.to_dp_accounting(), self.added.to_dp_accounting()
        return privacy_loss_distribution.PrivacyLossDistribution(*sides)


@lru_cache(maxsize=64)
def privacy_loss(mechanisms: Expenditure) -> Losses:
    """The privacy losses of all `mechanisms`.

    >>> from noisette import Mechanism
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=0.01, steps=100)
    >>> round(privacy_loss((mechanism,)).epsilon(1e-5), 2)
    0.55
    """
    paid = [mechanism for mechanism in mechanisms if mechanism.steps > 0]
    if not paid:
        none = Pmf(1.0, 0, np.ones(1), 0.0)
        return Losses(none, none)
    return next(_composed(paid, np.array([[mechanism.steps for mechanism in paid]])))


def privacy_losses(mechanism: Mechanism, steps: Sequence[int]) -> Iterator[Losses]:
    """The same after each of several numbers of `steps`, all above 0: one lattice and one transform for all of them.

    >>> from noisette import Mechanism
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=0.01, steps=100)
    >>> [round(loss.epsilon(1e-5), 2) for loss in privacy_losses(mechanism, [50, 100])]
    [0.43, 0.55]
    """
    return _composed([mechanism], np.array(steps, dtype=np.int64)[:, None])


def _composed(paid: Sequence[Mechanism | BestOf], counts: npt.NDArray[np.int64]) -> Iterator[Losses]:
    """For every row of `counts` (n, K), the losses of so many steps of each."""
    sides = [_search(one) if isinstance(one, BestOf) else _step(one) for one in paid]
    reaches, most = [side.reach for side in sides], counts.max(axis=0, keepdims=True)
    removed = compose(_lattice([side.removal for side in sides], reaches, most), counts)
    added = compose(_lattice([side.addition for side in sides], reaches, most), counts)
    return map(Losses, removed, added)


def _step(mechanism: Mechanism) -> DirectionalDivergences:
    """One step of a mechanism."""
    plain = _sampled(step_curve(mechanism.encoder, mechanism.noise), mechanism.rate)
    cut = exchanges(mechanism.sampling)
    if not cut:
        return plain
    curve = step_curve(mechanism.encoder, mechanism.noise, exchanged=True)
    moved, chances = [_sampled(curve, one.rate) for one in cut], [one.chance for one in cut]
    return DirectionalDivergences(
        _mixed(plain.removal, [one.removal for one in moved], chances),
        _mixed(plain.addition, [one.addition for one in moved], chances),
        max(plain.reach, *(one.reach for one in moved)),
    )


def _sampled(curve: Curve, rate: float) -> DirectionalDivergences:
    return DirectionalDivergences(removal(curve, rate), addition(curve, rate), sampled_reach(curve.reach, rate))


def _mixed(
    plain: Callable[[Array], Array], moved: Sequence[Callable[[Array], Array]], chances: Sequence[float]
) -> Callable[[Array], Array]:
    """The largest of some mixtures: with one of the `chances` at most what was `moved`, where that is worse."""

    def curve(eps: Array) -> Array:
        base = plain(eps)
        more = [chance * np.maximum(other(eps) - base, 0.0) for other, chance in zip(moved, chances, strict=True)]
        return np.asarray(base + np.max(more, axis=0))

    return curve


def _search(search: BestOf) -> DirectionalDivergences:
    """A search as a whole. An example is in the part that runs are trained on, or in that which gives scores."""
    groups = [search.runs] if search.score is None else [search.runs, (search.score,)]
    return pointwise_max([best_of_divergence(search.trials, [_losses(run) for run in group]) for group in groups])


def _losses(mechanism: Mechanism) -> tuple[Pmf, Pmf]:
    losses = next(_composed([mechanism], np.array([[mechanism.steps]])))
    return losses.removed, losses.added


def removal(curve: Curve, rate: float) -> Callable[[Array], Array]:
    """The excess of H of (1 - q) Q + q P against Q: q H(log(1 + (e^eps - 1)/q)); none where e^eps <= 1 - q."""

    def sampled(eps: Array) -> Array:
        with np.errstate(over="ignore"):
            ratio = np.expm1(eps) / rate
        inside, found = ratio > -1, np.zeros_like(ratio)
        found[inside] = rate * excess(curve.forward, np.log1p(np.minimum(ratio[inside], 1e300)))
        return found

    return sampled


def addition(curve: Curve, rate: float) -> Callable[[Array], Array]:
    """The excess of H of Q against (1 - q) Q + q P: with w = 1 - e^eps (1 - q) it is w H(log(e^eps q / w)).

    That takes H of Q against P, which the symmetric curve bounds as well. There is none where w <= 0.
    """

    def sampled(eps: Array) -> Array:
        weight = rate - np.expm1(np.minimum(eps, 1.0)) * (1 - rate)
        inside, found = weight > 0, np.zeros_like(weight)
        some = weight[inside]
        found[inside] = some * excess(curve.forward, eps[inside] + math.log(rate) - np.log(some))
        return found

    return sampled


def sampled_reach(reach: float, rate: float) -> float:
    """A loss that a sampled step reaches with next to no mass beyond, given the same of an unsampled one."""
    return float(np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + reach))


def _lattice(
    curves: Sequence[Callable[[Array], Array]], reaches: Sequence[float], counts: npt.NDArray[np.int64]
) -> list[Pmf]:
    """The curves on one lattice, fine enough for the whole composition of `counts` (1, K) steps of each."""
    top = max(reaches)
    step = top / _LEAST_POINTS
    for _ in range(_MOST_TRIES):
        parts = [connect_dots(curve, step, reach) for curve, reach in zip(curves, reaches, strict=True)]
        # losses that are all but certain spread over next to nothing, and need no finer lattice than their size does
        sizes = [max(part.spread, abs(part.mean) / 4) for part in parts]
        typical = math.sqrt(float(counts[0] @ np.square(sizes)) / float(counts.sum()))
        lower, upper, _ = window(parts, counts)
        # a typical step's loss, resolved; but no lattice longer than memory allows
        wanted = max(typical / _FINENESS, (upper - lower) * step / _MOST_POINTS, top / _MOST_POINTS)
        hopeless = max(part.infinity * n for part, n in zip(parts, counts[0], strict=True)) > 1  # no delta will hold
        fits = upper - lower <= 8 * _MOST_POINTS
        if (fits and wanted >= step / 1.5) or hopeless:
            return parts
        step = wanted
    raise Unaccountable(
        "no lattice that fits into memory resolves the losses of so many steps.", hint="take fewer steps"
    )
