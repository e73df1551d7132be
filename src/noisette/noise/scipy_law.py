"""Any symmetric, unimodal law of scipy.stats as a noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from noisette._spec import real
from noisette.errors import InvalidInput
from noisette.noise._rejection_sampler import strips
from noisette.noise.base import Array, Noise
from noisette.noise.gaussian import Gaussian
from noisette.noise.laplace import Laplace
from noisette.noise.logistic import Logistic
from noisette.random import Generator

# Laws that are ours as well: their proofs and closed forms hold for them, and epsilon is a bound.
_REVIEWED = {"norm": Gaussian(1.0), "laplace": Laplace(1.0), "logistic": Logistic(1.0)}

_GAUSS = np.polynomial.legendre.leggauss(20)
_FARTHEST = 1e100
_NO_MASS = 1e-30
_CONSISTENT = 1e-6


@lru_cache(maxsize=64)
def _frozen(name: str, shapes: tuple[float, ...]) -> Any:
    from scipy import stats  # noqa: PLC0415 - takes a second to import, and no other law needs it

    return getattr(stats, name)(*shapes)


@lru_cache(maxsize=64)
def _reach(name: str, shapes: tuple[float, ...]) -> tuple[float, str]:
    """How far out a law's density and tail are numbers that fit together; and what is wrong if not far enough.

    It is far enough where no mass to speak of is left.
    """
    law = _frozen(name, shapes)
    with np.errstate(all="ignore"):
        middle, far = float(law.isf(0.25)), float(law.isf(0.5e-280))
        far = far if middle < far < _FARTHEST else _FARTHEST
        x = np.concatenate([[0.0], np.geomspace(1e-9 * middle, middle, 40), np.geomspace(middle, far, 240)[1:]])
        log_density, tail = law.logpdf(x), law.sf(x)
        last = 1 + int(np.argmax(tail <= _NO_MASS)) if np.any(tail <= _NO_MASS) else len(x)
        x, log_density, tail = x[:last], log_density[:last], tail[:last]
        if not (np.all(np.isfinite(log_density)) and np.all(np.isfinite(tail))):
            return 0.0, "its density or its tail is not a number where it still has mass"
        if np.any(np.diff(log_density) > 1e-9) or np.any(np.diff(tail) > 1e-9 * tail[:-1]):
            return 0.0, "its density does not fall away from 0 on both sides (not unimodal)"
        nodes, weights = _GAUSS
        half = np.diff(x)[:, None] / 2
        mass = (np.exp(law.logpdf(x[:-1, None] + half * (1 + nodes))) * half) @ weights
        gap = np.abs(mass + np.diff(tail))
        if abs(tail[0] - 0.5) > _CONSISTENT or not np.all(gap <= _CONSISTENT * tail[:-1]):
            return 0.0, "its tail is not the integral of its density"
    return float(x[-1]), ""


@dataclass(frozen=True, init=False, repr=False)
class ScipyNoise(Noise):
    """``ScipyNoise("name", *shapes, scale=...)``: the law ``scipy.stats.name(*shapes)`` times scale.

    Symmetry and unimodality are checked on a grid, which is no proof: outside a short reviewed list the guarantee is
    an estimate. Asymmetric, multi-modal or compactly supported laws are refused with the reason, and so are those whose
    density and tail do not fit together in floats.

    >>> ScipyNoise("t", 5, scale=1.0)
    ScipyNoise('t', 5.0, scale=1.0)
    """

    name: str
    shapes: tuple[float, ...]
    scale: float | None

    def __init__(self, name: str, *shapes: float, scale: float | None = None) -> None:
        self._set(name=name, shapes=tuple(real("shape", shape) for shape in shapes), scale=scale)
        super().__post_init__()
        self._check()

    def __repr__(self) -> str:
        return f"ScipyNoise({', '.join(map(repr, (self.name, *self.shapes)))}, scale={self.scale!r})"

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls("t", 5, scale=1.0), cls("hypsecant", scale=0.5), cls("gennorm", 1.3, scale=1.0)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        fields = {"name": self.name, "shapes": self.shapes, "scale": self.scale} | changes
        return type(self)(fields["name"], *fields["shapes"], scale=fields["scale"])

    @property
    def certified(self) -> bool:  # type: ignore[override]
        """Whether the law is on the reviewed list."""
        return self.name in _REVIEWED

    @property
    def _law(self) -> Any:
        return _frozen(self.name, self.shapes)

    def _check(self) -> None:
        from scipy import stats  # noqa: PLC0415 - likewise

        law = getattr(stats, self.name, None) if isinstance(self.name, str) else None
        if not isinstance(law, stats.rv_continuous):
            raise InvalidInput(
                f"scipy.stats has no continuous law named {self.name!r}.", hint='write for example ScipyNoise("t", 5)'
            )
        try:
            if len(self.shapes) > law.numargs:  # scipy would take them for a place and a scale
                raise TypeError
            frozen = law(*self.shapes)
            lower, upper = frozen.support()
        except TypeError:
            raise InvalidInput(
                f"{self.name} does not take {len(self.shapes)} shape parameters.",
                hint=f"it takes: {law.shapes or 'none'}",
            ) from None
        if not (math.isnan(lower) or math.isnan(upper)) and (lower > -math.inf or upper < math.inf):
            raise self._refusal(f"its support is [{lower:g}, {upper:g}], so one example can be seen with certainty")
        u = np.concatenate([np.geomspace(1e-9, 0.4, 300), np.linspace(0.4, 0.5, 200)])
        with np.errstate(all="ignore"):
            grid = np.asarray(frozen.isf(u))
        if not np.all(np.isfinite(grid)):
            raise self._refusal("its parameters are not valid")
        with np.errstate(all="ignore"):
            density, mirrored = frozen.pdf(grid), frozen.pdf(-grid)
        if not np.all(np.isfinite(density)):
            raise self._refusal("its density is infinite at 0")
        if not np.allclose(density, mirrored, rtol=1e-7, atol=0):
            raise self._refusal("it is not symmetric about 0")
        if np.any(np.diff(density) < -1e-9 * density[:-1]):
            raise self._refusal("its density does not fall away from 0 on both sides (not unimodal)")
        fault = _reach(self.name, self.shapes)[1]
        if fault:
            raise self._refusal(fault)

    def _refusal(self, reason: str) -> InvalidInput:
        return InvalidInput(
            f"{self!r} cannot be accounted: {reason}.",
            hint="the worst case is known for symmetric, unimodal laws on the whole line, such as StudentT or Laplace",
        )

    def _log_prob(self, x: Array) -> Array:
        with np.errstate(all="ignore"):  # far out, scipy's own densities overflow on their way to zero
            return np.asarray(self._law.logpdf(x))

    def _standard_sf(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self._law.sf(x))

    def _abs_quantile(self, u: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self._law.isf(u / 2))

    def _sample(self, n: int, generator: Generator) -> Array:
        return strips(self).draw(n, generator)

    def _loss(self, y: Array, tau: float) -> Array:
        return _REVIEWED[self.name]._loss(y, tau) if self.name in _REVIEWED else super()._loss(y, tau)

    def _forward(self, eps: Array, tau: float) -> Array:
        return _REVIEWED[self.name]._forward(eps, tau) if self.name in _REVIEWED else super()._forward(eps, tau)

    def _largest_loss(self, tau: Array) -> Array:
        return _REVIEWED[self.name]._largest_loss(tau) if self.name in _REVIEWED else super()._largest_loss(tau)

    def _support_end(self) -> float:
        return _reach(self.name, self.shapes)[0]

    def _std(self) -> float:
        return float(self._law.std())
