"""Exact draws of a law whose inverse is slow: rejection under a staircase that lies close to its density."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from noisette.errors import InvalidInput
from noisette.noise.base import Array, Noise
from noisette.random import Generator

__all__ = ["Strips", "strips"]

_BODY, _TAIL = np.linspace(1.0, 0.5, 33), np.geomspace(0.5, 2.0**-100, 131)  # chances of a larger magnitude
_MOST_COVER = 4.0  # draws that are thrown away for one that is kept: with more, a sample would not end
_STEPS = 12  # strips between two of them


class Strips:
    """Upright strips that cover the density of ``|X|``: a point that falls uniformly on them and under it is a draw.

    The density never rises with ``|x|``, so a strip as high as its left end covers it, and whatever lies below the
    right end need not be looked at closely. Beyond the last strip, once in 2**100 draws, the law is inverted.

    Strips far out come first, where uniforms and their bounds are small numbers and right up to a small part of
    themselves: a strip is drawn as often as its area says, up to `error` of that, however small the area is.

    **Formal guarantees.** Draws follow the density of the law exactly, up to rounding, wherever the strips end.

    >>> from noisette.noise import VarianceGamma
    >>> strips(VarianceGamma(shape=2)).draw(5, Generator()).shape
    (5,)
    """

    def __init__(self, law: Noise) -> None:
        self._law = law
        body, tail = (np.maximum.accumulate(np.maximum(law._abs_quantile(u), 0.0)) for u in (_BODY, _TAIL))
        parts = np.linspace(body[:-1], body[1:], _STEPS), np.geomspace(tail[:-1], tail[1:], _STEPS)
        knots = np.unique(np.concatenate([[0.0], *map(np.ravel, parts)]))
        heights = 2 * np.exp(law._log_prob(knots))
        fit = np.isfinite(knots) & (heights > 0)  # the tails of some laws leave the range of a float
        knots, heights = knots[fit], heights[fit]
        self._starts, self._widths = knots[:-1], np.diff(knots)
        self._heights, self._sure = heights[:-1], heights[1:] / heights[:-1]
        self._tail = float(2 * law._standard_sf(knots[-1:])[0])
        areas = np.append(self._tail, (self._heights * self._widths)[::-1])
        covered = np.cumsum(areas, dtype=np.longdouble)
        if not covered[-1] < _MOST_COVER:
            raise InvalidInput(
                f"{law!r} cannot be drawn: strips under which its density fits have an area of {covered[-1]:g}.",
                hint="take parameters that are less extreme",
            )
        self._covered = (covered / covered[-1]).astype(np.float64)
        # the products, the bounds and the uniforms are rounded, and sums where long doubles are no longer than others
        roundings = 4 + (0 if np.finfo(np.longdouble).nmant > 60 else len(areas))
        self.error = 2 * roundings * 2.0**-52 * float((covered[1:] / areas[1:]).max())

    def draw(self, n: int, generator: Generator) -> Array:
        """`n` independent draws at scale 1, shape (n,)."""
        found = np.empty(n)
        done = 0
        while done < n:  # one in a hundred points falls beside the density
            signs, u = generator.signed_uniforms(n - done)
            drawn = self._points(u, generator)
            kept = drawn >= 0
            many = int(np.count_nonzero(kept))
            found[done : done + many] = (signs * drawn)[kept]
            done += many
        return found

    def _points(self, u: Array, generator: Generator) -> Array:
        """Magnitudes (n,) for uniforms u (n,), -1 where a point lies above the density."""
        strip = len(self._starts) - np.searchsorted(self._covered, u)
        inside = np.minimum(strip, len(self._starts) - 1)
        points: Array = self._starts[inside] + self._widths[inside] * generator.uniforms(len(u))
        level = generator.uniforms(len(u))  # of the point, over the height of its strip
        near = np.flatnonzero(level > self._sure[inside])
        above = level[near] * self._heights[inside[near]] > 2 * np.exp(self._law._log_prob(points[near]))
        points[near[above]] = -1.0
        beyond = np.flatnonzero(strip > inside)
        if len(beyond):
            points[beyond] = self._law._abs_quantile(self._tail * generator.uniforms_128(len(beyond)))
        return points


@lru_cache(maxsize=64)
def strips(law: Noise) -> Strips:
    """The strips of a law, made once; its scale does not matter."""
    return Strips(law)
