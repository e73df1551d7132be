"""`Poisson`: how batches are drawn. The library draws them itself, so that what is drawn is what is accounted."""

from __future__ import annotations

from dataclasses import dataclass

from noisette._spec import Spec, positive, whole
from noisette.errors import InvalidInput

__all__ = ["EXAMPLE", "UNIT", "Poisson"]

EXAMPLE, UNIT = "example", "unit"

_LEAST_RATE, _MOST_UNITS = 1e-30, 10**15  # far beyond any use, and well within what floats can count


@dataclass(frozen=True)
class Poisson(Spec):
    """Every unit joins every batch with probability `rate`, independently of all others.

    A unit is an example or, where `unit` says so, a person with all of theirs. With `max_batch`, one that came out
    larger is cut to as many units, chosen at random; what that costs is computed from `population`, the public number
    of those that there are (or more than there are).

    >>> Poisson(256 / 60000, max_batch=512, population=60000)
    Poisson(rate=0.004266666666666667, max_batch=512, population=60000, unit='example')
    """

    rate: float
    max_batch: int | None = None
    population: int | None = None
    unit: str = EXAMPLE

    def __post_init__(self) -> None:
        rate = positive("rate", self.rate, hint="the rate is expected batch / examples, like 256/60000")
        if rate > 1:
            raise InvalidInput(f"rate is {self.rate!r}, outside (0, 1].", hint="the rate is expected batch / examples")
        if rate < _LEAST_RATE:
            raise InvalidInput(f"rate is {self.rate!r}: no data set is as large.", hint="check batch and examples")
        self._set(rate=rate)
        for name in ("max_batch", "population"):
            if getattr(self, name) is not None:
                self._set(**{name: whole(name, getattr(self, name), least=1, most=_MOST_UNITS)})
        if (self.max_batch is None) != (self.population is None):
            raise InvalidInput(
                "only one of max_batch and population is given: how often a batch is cut depends on both.",
                hint="give max_batch, the largest batch, and population, how many units there are in all; or neither",
            )
        if self.unit not in (EXAMPLE, UNIT):
            raise InvalidInput(f"unit is {self.unit!r}.", hint=f'write unit="{EXAMPLE}" or unit="{UNIT}"')

    def untruncated(self) -> Poisson:
        """The same sampling, where batches are as large as they come out."""
        return self.replace(max_batch=None, population=None)
