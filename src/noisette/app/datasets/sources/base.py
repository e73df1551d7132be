"""`Source`: where a data set comes from. One file each; subclassing is all that it takes to be known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from noisette._spec import named
from noisette.app.datasets.base import Dataset
from noisette.errors import InvalidInput

__all__ = ["Source", "sources"]


class Source(ABC):
    """A data set that can be asked for by `name`, like ``digits``.

    A source that has to be told more gives its `forms`, like ``csv:PATH:TARGET``: what stands behind the first colon
    is its `rest`. Sources hold nothing: two of one class are the same.
    """

    name: ClassVar[str]
    forms: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def load(self, rest: str, root: Path) -> Dataset:
        """The data set; files that are looked for by name are in `root`."""

    def load_columns(self, rest: str, unit: str, target_bounds: tuple[float, float] | None) -> Dataset:  # noqa: ARG002
        """The data set, with what its columns tell: `unit` whose examples are whose; the target a number in bounds."""
        if target_bounds is not None:
            raise InvalidInput(
                f"the data set {self.name!r} has labels, and no number to predict.",
                hint="leave --task out, or name a table of your own: csv:PATH:TARGET",
            )
        raise InvalidInput(
            f"the data set {self.name!r} has no columns, so {unit!r} cannot say whose examples are whose.",
            hint="leave --unit out, or give make_private(units=ids) in a script of your own",
        )

    def people(self, rest: str) -> str:  # noqa: ARG002
        """A name for the people in it, the same for all that is asked of one file."""
        return self.name

    def unbounded(self, rest: str) -> Path | None:  # noqa: ARG002
        """The file that bounds of its columns would be read from, where it is not there; None where all is well."""
        return None

    def settled(self, rest: str) -> str:
        """`rest` in a form that means the same from every folder: paths in it are whole."""
        return rest

    def within(self, rest: str, of: str) -> bool:
        """Whether the test part of `rest` is, for certain, within that of `of`, where both have the same people."""
        return rest == of


def sources() -> dict[str, Source]:
    """Every source by name.

    >>> list(sources())
    ['breast-cancer', 'cifar10', 'csv', 'diabetes', 'digits', 'fashion-mnist', 'folder', 'mnist']
    """
    return named(Source)
