"""`Published`: a data set whose authors publish files, which `noisette data fetch` brings and every use checks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt

from noisette.app.datasets._published_files import DataFile, cache_folder, locate, read
from noisette.app.datasets.base import Dataset
from noisette.app.datasets.sources.base import Source
from noisette.errors import InvalidInput

__all__ = ["Part", "Published"]

Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class Published(Source):
    """`files`, as their authors publish them, kept in the sub-folder `folder` of the data root.

    `address` is where they are published: a folder of .gz files, whose address ends in a slash, or one .tar.gz archive
    that holds them all.
    """

    folder: ClassVar[str]
    files: ClassVar[tuple[DataFile, ...]]
    address: ClassVar[str]
    classes: ClassVar[int] = 10

    @abstractmethod
    def decode(self, contents: Sequence[bytes]) -> tuple[Part, Part]:
        """The training and the test part, each inputs (N, ...) and labels (N,), from the contents of `files`."""

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        folder = root / self.folder
        paths = [(file, locate(file, folder)) for file in self.files]
        missing = [file.name for file, path in paths if path is None]
        if missing:
            raise InvalidInput(
                f"{self.name} is not in {folder.absolute()}: {missing[0]} is missing, plain or as .gz or .xz.",
                hint=f"run `noisette data fetch {self.name}`, or say where it is with --data-root or NOISETTE_DATA",
            )
        copies = cache_folder()
        train, test = self.decode([read(file, path, copies) for file, path in paths if path is not None])
        return Dataset.from_arrays(self.name, train, test, classes=self.classes)
