"""What a search may try: public lists of settings, and laws that settings are drawn from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from noisette._spec import positive
from noisette.errors import InvalidInput
from noisette.random import Generator

__all__ = ["SETTINGS", "Candidates", "LogUniform", "read_option"]

SETTINGS: dict[str, type] = {
    "batch": int,
    "lr": float,
    "steps": int,
    "momentum": float,
    "schedule": str,
    "averaging": float,
    "encoder": str,
    "noise": str,
    "denoiser": str,
    "model_seed": int,
}
"""Settings of a recipe that a search may try, and their types."""

_FREE = ("lr", "momentum", "averaging")  # settings that no mechanism depends on
_MOST = 10_000


@final
@dataclass(frozen=True)
class LogUniform:
    """A number whose logarithm is uniform between those of `low` and `high`.

    >>> 0.1 <= LogUniform(0.1, 10).draw(Generator(seed=1)) <= 10
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not positive("low", self.low) < positive("high", self.high):
            raise InvalidInput(f"{self.low:g} to {self.high:g} is no range.", hint="give the lower end first")

    def draw(self, generator: Generator) -> float:
        """One number, to six digits."""
        share = float(generator.uniforms(1)[0])
        return float(f"{self.low * math.exp(share * math.log(self.high / self.low)):.6g}")


@dataclass(frozen=True)
class Candidates:
    """Rows of settings, each as likely as the others. A value may be a law, which every run draws from anew.

    >>> Candidates.of({"lr": [0.5, 1, 2], "batch": [256, 1024]}).draw(Generator(seed=1))
    {'lr': 0.5, 'batch': 256}
    """

    rows: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Candidates:
        """Those of a grid, which gives a list or a law for each setting, or of a list of settings as they are."""
        rows: Sequence[Mapping[str, Any]]
        if isinstance(given, Mapping):
            lists = {
                name: [values] if isinstance(values, LogUniform) else _list(name, values)
                for name, values in given.items()
            }
            if math.prod(map(len, lists.values())) > _MOST:
                raise InvalidInput(f"the grid has more than {_MOST} points.", hint="try fewer values")
            rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
        else:
            rows = list(given)
        if not rows or not all(rows):
            raise InvalidInput("there is nothing to try.", hint="give settings with values, like lr=0.5,1,2")
        return cls(tuple({name: _value(name, value) for name, value in row.items()} for row in rows))

    def draw(self, generator: Generator) -> dict[str, Any]:
        """The settings of one run, independent of all others."""
        row = self.rows[min(int(generator.uniforms(1)[0] * len(self.rows)), len(self.rows) - 1)]
        return {name: value.draw(generator) if isinstance(value, LogUniform) else value for name, value in row.items()}

    def corners(self) -> list[dict[str, Any]]:
        """Rows in which a law is at its ends: where all of these are valid, so is whatever is drawn."""
        found: list[dict[str, Any]] = []
        for row in self.rows:
            ends = [(value.low, value.high) if isinstance(value, LogUniform) else (value,) for value in row.values()]
            found += [dict(zip(row, values, strict=True)) for values in itertools.product(*ends)]
        return found


def read_option(text: str) -> tuple[str, Any]:
    """The setting and its values that a text like ``lr=0.5,1,2`` or ``lr=0.1..10`` gives.

    >>> read_option("lr=0.1..10"), read_option("noise=Gaussian(),StudentT(df=9)")
    (('lr', LogUniform(low=0.1, high=10.0)), ('noise', ['Gaussian()', 'StudentT(df=9)']))
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals:
        raise InvalidInput(f"{text!r} is not NAME=VALUES.", hint="write for example --grid lr=0.5,1,2")
    kind = _kind(name)
    low, dots, high = values.partition("..")
    if dots and kind is float:
        return name, LogUniform(_read(name, low, float), _read(name, high, float))
    return name, [_read(name, value, kind) for value in _split(values)]


def _split(text: str) -> list[str]:
    """The parts of `text` between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _read(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{name} is {text.strip()!r}, not a number.", hint=f"write for example --grid {name}=1,2"
        ) from None


def _kind(name: str) -> type:
    if name not in SETTINGS:
        raise InvalidInput(f"{name!r} is not a setting that can be tried.", hint=f"try some of {', '.join(SETTINGS)}")
    return SETTINGS[name]


def _list(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not values:
        raise InvalidInput(f"there is no value of {name} to try.", hint=f"give a list, like {name}=1,2")
    return list(values)


def _value(name: str, value: Any) -> Any:
    kind = _kind(name)
    if isinstance(value, LogUniform):
        if name not in _FREE:
            raise InvalidInput(
                f"{name} cannot be drawn from a law, because what a run costs depends on it.",
                hint=f"give a list; laws are for {', '.join(_FREE)}",
            )
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise InvalidInput(f"{name} is {value!r}, not of type {kind.__name__}.", hint="check the values to try")
    return kind(value)
