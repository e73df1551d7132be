"""The points of a run: what metrics.jsonl holds, a line for every evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from noisette import _io
from noisette._spec import entries, line, real, whole

__all__ = ["Metric", "Point", "read"]


@dataclass(frozen=True)
class Metric:
    """How good a model is on public test data: `key` is the name of the measure in files.

    >>> Metric("accuracy", 0.931), Metric("mean_absolute_error", 12.3456).text
    (Metric(key='accuracy', value=0.931), '12.35')
    """

    key: str
    value: float

    @property
    def name(self) -> str:
        """The measure as people call it."""
        return self.key.replace("_", " ")

    @property
    def text(self) -> str:
        """The value as it is shown."""
        return f"{self.value:.2%}" if self.key == "accuracy" else f"{self.value:.4g}"


_MEASURES = ("accuracy", "mean_absolute_error")


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl: public values only, unless the user asked for private ones."""

    updates: int
    paid: int
    total: int
    epsilon: float
    flags: tuple[str, ...]
    accuracy: float | None = None
    train_loss: float | None = None
    mean_absolute_error: float | None = None

    @property
    def measured(self) -> Metric | None:
        """What was measured on test data; None where there is none."""
        values = {key: getattr(self, key) for key in _MEASURES}
        return next((Metric(key, value) for key, value in values.items() if value is not None), None)

    @property
    def as_json(self) -> dict[str, float | None]:
        """The measure by its key, for JSON."""
        found = self.measured
        return {"accuracy": None} if found is None else {found.key: found.value}

    @property
    def label(self) -> str:
        """What stands beside the epsilon wherever it is shown: its flags.

        >>> Point(1, 1, 6, 0.5, ("reproducible",)).label
        'epsilon (reproducible)'
        """
        return f"epsilon ({', '.join(self.flags)})" if self.flags else "epsilon"

    def line(self) -> str:
        """As JSON, with what is not known left out."""
        return json.dumps({key: value for key, value in vars(self).items() if value is not None}) + "\n"

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """The point in a line that was read; what else the line says is left alone.

        >>> Point.of({"updates": 2, "paid": 2, "total": 6, "epsilon": 0.5, "flags": []}).accuracy is None
        True
        """
        point: dict[str, Any] = {
            name: whole(name, found.get(name), least=0, most=10**12) for name in ("updates", "paid", "total")
        }
        point["flags"] = tuple(line("flags", stamp) for stamp in entries("flags", found.get("flags")))
        shown = [name for name in (*_MEASURES, "train_loss") if found.get(name) is not None]
        point |= {name: real(name, found.get(name)) for name in ("epsilon", *shown)}
        return cls(**point)


def read(folder: Path) -> list[Point]:
    """The points of the run in `folder` so far; none where there is no file yet."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    found = _io.records(path)
    with _io.naming(path):
        return [Point.of(one) for one in found]
