"""`make figures`: what it fills, draws and writes, and what it refuses."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.tests.conftest import EXPERIMENTS, importable

pytestmark = pytest.mark.research

PNG = b"\x89PNG\r\n\x1a\n"
Figures = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the modules of the L1 figure with its points, in a clone of its own."""
    copy = tmp_path / "experiments"
    (copy / "results").mkdir(parents=True)
    for name in ("figures", "kept", "paper", "page", "markdown", "order_two", "l1_distance"):
        shutil.copy(EXPERIMENTS / f"{name}.py", copy)
    shutil.copytree(EXPERIMENTS / "paper", copy / "paper")
    shutil.copy(EXPERIMENTS / "results" / "l1_distance.json", copy / "results")
    return copy


@pytest.fixture
def figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> Figures:
    """`python experiments/figures.py ARGUMENTS` in that clone: its exit status and what it wrote."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with importable(folder):
            code: int = importlib.import_module("figures").main(arguments)
        return code, *capsys.readouterr()

    return call


def points(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "results" / "l1_distance.json").read_text())
    return found


def rewrite(folder: Path, kept: list[dict[str, Any]]) -> None:
    (folder / "results" / "l1_distance.json").write_text(json.dumps(kept))


def test_exactly_the_missing_point_is_filled(figures: Figures, folder: Path) -> None:
    before = points(folder)
    gone = before.pop(17)
    before[3]["d2"] = 0.123  # were it computed again, it would not stay
    rewrite(folder, before)
    code, out, _ = figures()
    assert code == 0
    assert points(folder) == [*before, gone]
    page = folder.parent / "docs" / "results.md"
    assert f"page: {page}" in out
    assert "## L1 error against D2" in page.read_text()
    assert (folder / "results" / "l1_distance.png").read_bytes().startswith(PNG)


def test_draw_computes_nothing(figures: Figures, folder: Path) -> None:
    with (folder / "l1_distance.py").open("a") as module:
        module.write("\n\ndef fill(tell):\n    raise AssertionError\n")
    code, out, _ = figures("l1_distance", "--draw")
    assert code == 0
    assert "holds" in out
    assert f"plot: {folder / 'results' / 'l1_distance.png'}" in out
    assert (folder / "results" / "l1_distance.png").read_bytes().startswith(PNG)
    with pytest.raises(AssertionError):
        figures("l1_distance")


def test_ctrl_c_keeps_what_is_done(figures: Figures, folder: Path) -> None:
    with (folder / "l1_distance.py").open("a") as module:
        module.write("\n\ndef fill(tell):\n    tell('long', 1, 9)\n    raise KeyboardInterrupt\n")
    code, out, err = figures("l1_distance")
    assert (code, out) == (1, "")
    assert "finished points are kept" in err
    assert not (folder.parent / "docs").exists()


def test_draw_says_which_points_are_missing(figures: Figures, folder: Path) -> None:
    rewrite(folder, points(folder)[:-1])
    code, _, err = figures("l1_distance", "--draw")
    assert code == 1
    assert "l1_distance.json has no point" in err
    assert "make figures" in err


@pytest.mark.parametrize("name", ["l2_distance", "best", "kept"])  # the module of `best` is not here
def test_a_figure_that_nobody_knows(figures: Figures, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        figures(name)
    assert ended.value.code == 2
    assert f"there is no figure '{name}': choose from l1_distance" in capsys.readouterr().err
