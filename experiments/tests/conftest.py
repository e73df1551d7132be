"""The modules of experiments/, imported by their plain names, as its scripts import them."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Inside, the modules of `folder` are imported by their plain names, and no others of these names are."""
    names = [path.stem for path in folder.glob("*.py")]
    aside = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(aside)


@pytest.fixture
def here() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of experiments/ by name."""
    with importable(EXPERIMENTS):
        yield importlib.import_module


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of experiments/ with its points, whose modules are imported by name and whose page is its own."""
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("work", "__pycache__"))
    with importable(folder):
        yield folder
