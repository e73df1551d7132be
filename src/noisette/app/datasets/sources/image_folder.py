"""``folder:PATH``: images of your own, in a folder for every class."""

from __future__ import annotations

from pathlib import Path

from noisette.app.datasets.base import Dataset
from noisette.app.datasets.sources.base import Source

__all__ = ["ImageFolder"]


class ImageFolder(Source):
    """PNG and JPEG files in ``PATH/train/CLASS/`` and ``PATH/test/CLASS/``."""

    name = "folder"
    forms = ("folder:PATH",)

    def load(self, rest: str, root: Path) -> Dataset:  # noqa: ARG002
        return Dataset.from_folder(rest)

    def people(self, rest: str) -> str:
        return f"{self.name}:{Path(rest).resolve()}"

    def settled(self, rest: str) -> str:
        return str(Path(rest).absolute())

    def within(self, rest: str, of: str) -> bool:  # noqa: ARG002 - however it is spelt, a folder has one test part
        return True
