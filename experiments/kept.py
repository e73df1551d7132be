"""Points of an experiment that are kept in a JSON file, so that a rerun computes only what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from noisette import _io, _locks
from noisette.errors import InvalidInput

RESULTS = Path(__file__).parent / "results"

Point = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A row of the table in docs/results.md; `verdict` starts with "holds", "does not hold" or "partly"."""

    claim: str
    paper: str
    ours: str
    verdict: str

    def __post_init__(self) -> None:
        if not self.verdict.startswith(("holds", "does not hold", "partly")):
            raise InvalidInput(
                f"the verdict {self.verdict!r} is none.", hint='start it with "holds", "does not hold" or "partly"'
            )


class Kept:
    """The points of ``results/NAME.json``: flat JSON objects in the order in which they were added.

    A key is any part of a point that names it: ``kept.has(sigma=1.1, seed=0)``.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self.path = (folder or RESULTS) / f"{name}.json"

    @property
    def points(self) -> list[Point]:
        """All points, read afresh: another process may have added some."""
        if not self.path.exists():
            return []
        return [dict(point) for point in _points(self.path.read_text())]

    def all(self, **key: Any) -> list[Point]:
        """The points that agree with `key`."""
        return [p for p in self.points if all(name in p and p[name] == value for name, value in key.items())]

    def has(self, **key: Any) -> bool:
        """Whether some point agrees with `key`."""
        return bool(self.all(**key))

    def find(self, **key: Any) -> Point:
        """The first point that agrees with `key`."""
        points = self.all(**key)
        if not points:
            raise InvalidInput(f"{self.path.name} has no point {key}.", hint="compute it: make figures")
        return points[0]

    def add(self, point: Point) -> None:
        """Keep one more point at once; a crash leaves the file as it was, and points of other processes stay."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            _locks.hold(folder, wait=True)
            self.rewrite([*self.points, point])
        finally:
            os.close(folder)

    def rewrite(self, points: Sequence[Point]) -> None:
        """Keep these points and no others: for what is derived from other results in seconds."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _io.write(self.path, text(points).encode())


@lru_cache(maxsize=8)
def _points(text: str) -> list[Point]:
    """The points of a file: a page asks for them a thousand times."""
    points: list[Point] = json.loads(text)
    return points


def text(points: Sequence[Point]) -> str:
    """JSON with one point a line, so that a new point is one new line of a diff."""
    lines = ",\n".join(json.dumps(point, allow_nan=False) for point in points)
    return f"[\n{lines}\n]\n" if points else "[]\n"
