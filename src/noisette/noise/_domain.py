"""Where a law's functions are accurate. Outside there is an error with a hint, never a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from noisette._spec import positive, real
from noisette.errors import InvalidInput, Unaccountable

__all__ = ["Domain"]

_NONE: Mapping[str, tuple[float, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Domain:
    """Ranges on which the distribution function of a law has a relative error of at most its `survival_rel_error`.

    `parameters` are the shapes of the law by name, `scale` is its scale. `shifts` and `losses` are what accounting may
    ask for: a shift over the scale, and the magnitude of an eps. What is smaller than the least shift, or larger than
    the largest loss, is rounded to it, which can only raise a hockey stick: it grows with the shift and falls with eps.

    >>> Domain(parameters={"df": (0.2, 1e6)}).parameter("df", 9)
    9.0
    """

    parameters: Mapping[str, tuple[float, float]] = field(default_factory=lambda: _NONE)
    scale: tuple[float, float] = (1e-100, 1e100)
    shifts: tuple[float, float] = (1e-15, 1e6)
    losses: float = 700.0

    def parameter(self, name: str, value: Any, hint: str = "") -> float:
        """`value` as a float in the range of a shape, or of the scale."""
        low, high = self.scale if name == "scale" else self.parameters[name]
        number = positive(name, value, hint=hint)
        if not low <= number <= high:
            raise InvalidInput(
                f"{name} is {number!r}, outside [{low:g}, {high:g}], where the law is accurate in floats.",
                hint=f"give {name} between {low:g} and {high:g}",
            )
        return number

    def shift(self, tau: Any, scale: float) -> float:
        """The magnitude of a shift in units of the scale: 0, or not below the least one; an error above the largest."""
        size = abs(real("tau", tau))
        least, largest = self.shifts
        if size > largest * scale:
            raise Unaccountable(
                f"a shift of {size:g} is more than {largest:g} times the noise scale {scale:g}, which hides nothing.",
                hint="raise the scale, or lower the encoder's radius",
            )
        return max(size / scale, least) if size else 0.0
