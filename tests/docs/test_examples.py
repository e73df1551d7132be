"""The examples run, at a small size, in this process; what they find at full size is in their pages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["bert", "gpt2", "lstm", "pictures", "many_processes"])
def test_it_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded(name).main(small=True)
    assert "epsilon = " in capsys.readouterr().out


def test_users_as_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Of its three runs one protects an image, and two a user with all of their images."""
    runs = loaded("units").main(small=True)
    assert ["one unit" in run["adjacency"] for run in runs] == [False, True, True]
    assert all(run["epsilon"] <= 3 for run in runs)
    assert runs[1]["largest_user"] > 8
    assert capsys.readouterr().out.count("epsilon = ") == 3


def test_adapters(capsys: pytest.CaptureFixture[str]) -> None:
    found = loaded("bert").main(small=True, lora=True)
    assert found["bags"] < 0.6
    assert found["epsilon"] <= 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_transformer_learns_in_private(seed: int) -> None:
    """At epsilon 8 it goes nine tenths of the way from guessing to what it learns without privacy."""
    found = loaded("bert").main(seed=seed)
    assert found["bags"] < 0.6
    assert found["plain"] > 0.9
    assert found["share"] >= 0.9
