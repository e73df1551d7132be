"""Any symmetric, unimodal law of scipy.stats as a noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy import stats

from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.noise.base import Array, Noise
from noisette.noise.strips import strips
from noisette.spec import real

# Symmetric and log-concave, by their closed forms, and accurate in floats however far out: epsilon is a bound.
_REVIEWED = frozenset({"norm", "laplace", "logistic"})


@lru_cache(maxsize=64)
def _frozen(name: str, shapes: tuple[float, ...]) -> Any:
    return getattr(stats, name)(*shapes)


@dataclass(frozen=True, init=False, repr=False)
class ScipyNoise(Noise):
    """``ScipyNoise("name", *shapes, scale=...)``: the law ``scipy.stats.name(*shapes)`` times scale.

    Symmetry and unimodality are checked on a grid, which is no proof: outside a short reviewed list the guarantee is
    an estimate. Asymmetric, multi-modal or compactly supported laws are refused with the reason.

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
        law = getattr(stats, self.name, None) if isinstance(self.name, str) else None
        if not isinstance(law, stats.rv_continuous):
            raise InvalidInput(
                f"scipy.stats has no continuous law named {self.name!r}.", hint='write for example ScipyNoise("t", 5)'
            )
        try:
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

    def _refusal(self, reason: str) -> InvalidInput:
        return InvalidInput(
            f"{self!r} cannot be accounted: {reason}.",
            hint="the worst case is known for symmetric, unimodal laws on the whole line, such as StudentT or Laplace",
        )

    def _log_prob(self, x: Array) -> Array:
        with np.errstate(all="ignore"):  # far out, scipy's own densities overflow on their way to zero
            return np.asarray(self._law.logpdf(x))

    def _sf(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self._law.sf(x))

    def _magnitude(self, u: Array) -> Array:
        return np.asarray(self._law.isf(u / 2))

    def _sample(self, n: int, generator: Generator) -> Array:
        return strips(self).draw(n, generator)

    def _peak(self, tau: float) -> float:
        return math.inf if self.certified else super()._peak(tau)

    def _std(self) -> float:
        return float(self._law.std())
