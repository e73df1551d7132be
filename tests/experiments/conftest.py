"""The modules of experiments/, imported by their plain names, as the command imports them."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from noisette.cli.figures import importable

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def here() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of experiments/ by name."""
    with importable(EXPERIMENTS):
        yield importlib.import_module


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of experiments/ with its points, whose modules are imported by name and whose page is its own."""
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with importable(folder):
        yield folder
