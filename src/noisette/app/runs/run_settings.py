"""What a run must know beside its recipe: settings.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Any, Self

from noisette import _io
from noisette._spec import entries, line, whole
from noisette.errors import InvalidInput

__all__ = ["Settings"]

_MOST = 10**8


@dataclass(frozen=True)
class Settings:
    """Whose data a run has, where it computes, the shape of an example, and what its results are stamped with.

    `classes` is how many there are, 1 where a number is learnt; `labels` are their names, which are public.

    `launch` is the torchrun that started it. `search` is "trial" for a run that a search makes, which is private, and
    "winner" for the one that it has chosen. There is no private value, and no seed. A run writes its settings first of
    all, and once more when it is set up: only then shape and classes are known, and only then it may pay.
    """

    people: str
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    device: str = "cpu"
    data_root: str | None = None
    shared: str | None = None
    unsafe: bool = False
    reproducible: bool = False
    launch: str | None = None
    search: str | None = None
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shape is not None or self.classes is not None:
            shape = tuple(whole("shape", size, least=1, most=_MOST) for size in entries("shape", self.shape))
            object.__setattr__(self, "shape", shape)
            object.__setattr__(self, "classes", whole("classes", self.classes, least=1, most=_MOST))
        if self.labels is not None:
            names = tuple(line("labels", name) for name in entries("labels", self.labels))
            if self.classes is not None and len(names) != self.classes:
                raise InvalidInput("labels do not fit classes.", hint="restore the file from a backup")
            object.__setattr__(self, "labels", names)
        for name in ("people", "device", "data_root", "shared", "launch"):
            if getattr(self, name) is not None or name in ("people", "device"):
                line(name, getattr(self, name))
        if self.search not in (None, "trial", "winner"):
            raise InvalidInput("search is neither trial nor winner.", hint="restore the file from a backup")
        for name in ("unsafe", "reproducible"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} is neither true nor false.", hint="restore the file from a backup")

    @property
    def ready(self) -> bool:
        """Whether the run is set up."""
        return self.shape is not None

    def example(self, folder: Path) -> tuple[tuple[int, ...], int]:
        """Shape of an example and number of classes; an error where the run in `folder` is not set up yet."""
        if self.search == "trial":
            raise InvalidInput(
                f"the run in {folder} is one of a search, and private.",
                hint="use the run that the search has chosen: no epsilon covers another one",
            )
        if self.shape is None or self.classes is None:
            raise InvalidInput(
                f"the run in {folder} is not set up yet, so nothing was spent.",
                hint=f"if no process is at it any more, go on with noisette resume {quote(str(folder))}, "
                "or delete the folder",
            )
        return self.shape, self.classes

    def to_json(self) -> str:
        """JSON text that `of` reads back to an equal value."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The settings of the run in `folder`."""
        return cls.of(folder, _io.text(folder / "settings.json"))

    @classmethod
    def of(cls, folder: Path, content: str) -> Self:
        """The settings in `content`, which was read from the run in `folder`."""
        path = folder / "settings.json"
        found: dict[str, Any] = _io.record(path, content)
        known = {one.name for one in fields(cls)}
        if not {"shape", "classes", "people", "reproducible"} <= found.keys() <= known:
            raise InvalidInput(
                f"{path} is damaged or of another version.", hint="restore it, or use the noisette that wrote it"
            )
        with _io.naming(path):
            return cls(**found)
