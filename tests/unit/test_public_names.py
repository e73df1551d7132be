"""The public names: imported when they are asked for, and the same for those who run and those who read."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import noisette

WHERE_USED = {"dp_accounting", "matplotlib", "sklearn", "PIL", "scipy.stats", "scipy.integrate", "scipy.interpolate"}


def loaded_by(code: str) -> set[str]:
    told = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_package_itself_loads_nothing() -> None:
    assert not loaded_by("import noisette") & {"torch", "numpy", "scipy", *WHERE_USED}


def test_no_public_name_loads_what_only_some_need() -> None:
    """Whatever takes long to import is imported where it is used: when an epsilon or a picture is made."""
    loaded = loaded_by("from noisette import *\nassert Mechanism and make_private")
    assert "torch" in loaded
    assert not loaded & WHERE_USED


def test_the_stub_says_the_same() -> None:
    tree = ast.parse(Path(noisette.__file__).with_suffix(".pyi").read_text())
    homes = {a.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    listed = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    assert homes == {name: noisette._HOMES[name] for name in noisette.__all__}
    assert sorted(listed) == noisette.__all__


def test_a_name_is_that_of_its_module() -> None:
    for name in noisette.__all__:
        assert getattr(noisette, name) is getattr(importlib.import_module(noisette._HOMES[name]), name)
        assert name in dir(noisette)


def test_no_public_name_is_a_module() -> None:
    """Importing a module sets it on the package: one called like a function would take the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(noisette.__path__)} & set(noisette.__all__)


def test_modules_are_attributes() -> None:
    assert "noisette.accounting.account" in loaded_by(
        "import noisette\nassert noisette.accounting.guarantee and noisette.errors"
    )


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'noisette' has no attribute 'gaussian'"):
        _ = noisette.gaussian
    assert not hasattr(noisette, "__wrapped__")


@pytest.mark.parametrize(
    ("code", "given", "turns"),
    [
        ("import noisette, torch", {}, 10_000),
        ("import noisette, torch", {"OMP_WAIT_POLICY": "passive"}, 0),
        ("import noisette, torch", {"GOMP_SPINCOUNT": "77"}, 77),
    ],
)
def test_threads_sleep_while_they_wait_unless_told_otherwise(code: str, given: dict[str, str], turns: int) -> None:
    """The OpenMP library says itself, when torch loads it, how often a thread that waits looks before it sleeps."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment = others | given | {"OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert f"GOMP_SPINCOUNT = '{turns}'" in done.stderr
