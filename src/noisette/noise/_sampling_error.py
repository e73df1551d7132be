"""How close the draws of a law come to the law itself, in floats."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Accuracy"]


@dataclass(frozen=True)
class Accuracy:
    """What is stated of a sampler, and counted by accounting (`noisette.accounting._float_error`).

    A draw is a function of uniforms. In floats it comes out at most `position` times 2**-52 of itself, or of the scale
    where that is larger, away from where it would with the same uniforms in exact arithmetic. Laws that are drawn by
    rejection have densities, by which points are kept, that are right up to `density` times 2**-52 times one plus
    the size of their logarithm; and strips whose areas are right up to `relative` of themselves. Draws of which so many
    are made `together`, of the same uniforms, are wrong together.

    >>> Accuracy(position=8).density
    0.0
    """

    position: float
    density: float = 0.0
    relative: float = 0.0
    together: int = 1
