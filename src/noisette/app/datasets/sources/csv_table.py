"""``csv:PATH:TARGET``: a table of your own, and ``csv:PATH:TARGET:0.2`` to hold out a fifth of its rows."""

from __future__ import annotations

import os
from pathlib import Path

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.column_bounds import beside, file_beside
from noisette.app.datasets.sources.base import Source
from noisette.errors import InvalidInput

__all__ = ["CsvTable"]


class CsvTable(Source):
    """A comma-separated file; bounds of its columns are in ``NAME.bounds.toml`` beside ``NAME.csv``, if at all."""

    name = "csv"
    forms = ("csv:PATH:TARGET", "csv:PATH:TARGET:TEST_FRACTION")

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        return self.load_columns(rest, "", None)

    def load_columns(self, rest: str, unit: str, target_bounds: tuple[float, float] | None) -> Dataset:
        path, target, fraction = self._parts(rest)
        return Dataset.from_csv(path, target, fraction, beside(Path(path)), unit, target_bounds)

    def people(self, rest: str) -> str:
        return f"{self.name}:{Path(self._parts(rest)[0]).resolve()}"

    def unbounded(self, rest: str) -> Path | None:
        file = file_beside(Path(self._parts(rest)[0]))
        return None if os.path.exists(file) else file

    def settled(self, rest: str) -> str:
        path = self._parts(rest)[0]
        return f"{Path(path).absolute()}{rest[len(path) :]}"  # links stay: bounds are beside the name that was given

    def within(self, rest: str, of: str) -> bool:
        (_, target, fraction), (_, trained, held_out) = self._parts(rest), self._parts(of)
        return target == trained and fraction <= held_out  # the rows of a smaller share are among those of a larger

    def _parts(self, rest: str) -> tuple[str, str, float]:
        path, _, last = rest.rpartition(":")
        try:
            fraction = float(last)
        except ValueError:
            target, fraction = last, 0.0
        else:
            path, _, target = path.rpartition(":")
        if not path or not target:
            raise InvalidInput(
                f"{f'{self.name}:{rest}'!r} does not say which column is the label.",
                hint=f"write {' or '.join(self.forms)}",
            )
        return path, target, fraction
