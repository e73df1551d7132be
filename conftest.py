"""Runs the listings of a page before its examples, so that what the pages show is what works."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

_LISTING = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _page(request: pytest.FixtureRequest) -> None:
    """Import every ```python listing of a page as a module of its own; its names are there for ``>>>`` examples.

    A page works in a folder of its own, where its examples may leave files.
    """
    if request.path.suffix != ".md":
        return
    folder: Path = request.getfixturevalue("tmp_path")
    names: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    request.getfixturevalue("monkeypatch").chdir(folder)
    for number, code in enumerate(_LISTING.findall(request.path.read_text(encoding="utf-8"))):
        file = folder / f"listing_{number}.py"
        file.write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"{request.path.stem.replace('-', '_')}_{number}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        names.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
