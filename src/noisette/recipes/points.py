"""The points of a run: what metrics.jsonl holds, a line for every evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from noisette import files
from noisette.spec import real, whole

__all__ = ["Point", "read"]


@dataclass(frozen=True)
class Point:
    """One line of metrics.jsonl: public values only, unless the user asked for private ones."""

    updates: int
    paid: int
    total: int
    epsilon: float
    accuracy: float | None
    train_loss: float | None = None

    def line(self) -> str:
        """As JSON, with what is not known left out."""
        return json.dumps({key: value for key, value in vars(self).items() if value is not None}) + "\n"

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """The point in a line that was read; what else the line says is left alone.

        >>> Point.of({"updates": 2, "paid": 2, "total": 6, "epsilon": 0.5}).accuracy is None
        True
        """
        counts = {name: whole(name, found.get(name), least=0, most=10**12) for name in ("updates", "paid", "total")}
        numbers = {
            one.name: real(one.name, found[one.name])
            for one in fields(cls)
            if one.name not in counts and found.get(one.name) is not None
        }
        return cls(**{"accuracy": None, "epsilon": real("epsilon", found.get("epsilon"))} | counts | numbers)  # type: ignore[arg-type]


def read(folder: Path) -> list[Point]:
    """The points of the run in `folder` so far; none where there is no file yet."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    found = files.records(path)
    with files.naming(path):
        return [Point.of(one) for one in found]
