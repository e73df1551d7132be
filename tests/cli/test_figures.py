"""`noisette figures`: what it fills, draws and writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the modules of the L1 figure with its points, where the command is run."""
    copy = tmp_path / "experiments"
    (copy / "results").mkdir(parents=True)
    for name in ("kept", "paper", "page", "markdown", "order_two", "l1_distance"):
        shutil.copy(EXPERIMENTS / f"{name}.py", copy)
    shutil.copytree(EXPERIMENTS / "paper", copy / "paper")
    shutil.copy(EXPERIMENTS / "results" / "l1_distance.json", copy / "results")
    return copy


def points(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "results" / "l1_distance.json").read_text())
    return found


def rewrite(folder: Path, kept: list[dict[str, Any]]) -> None:
    (folder / "results" / "l1_distance.json").write_text(json.dumps(kept))


def test_exactly_the_missing_point_is_filled(noisette: Command, folder: Path) -> None:
    before = points(folder)
    gone = before.pop(17)
    before[3]["d2"] = 0.123  # were it computed again, it would not stay
    rewrite(folder, before)
    value = noisette("figures", "l1_distance", "--json").json
    assert points(folder) == [*before, gone]
    assert value["page"] == "docs/results.md"
    assert [row["name"] for row in value["figures"]] == ["l1_distance"]
    assert (folder / "results" / "l1_distance.png").read_bytes().startswith(PNG)
    assert "## L1 error against D2" in (folder.parent / "docs" / "results.md").read_text()


def test_without_a_name_all_figures_that_are_there(noisette: Command, folder: Path) -> None:
    value = noisette("figures", "--json").json
    assert [row["name"] for row in value["figures"]] == ["l1_distance"]
    assert set(value["figures"][0]) == {"name", "picture", "claims"}
    assert set(value["figures"][0]["claims"][0]) == {"claim", "paper", "ours", "verdict"}


def test_draw_computes_nothing(noisette: Command, folder: Path) -> None:
    (folder / "l1_distance.py").write_text(
        (folder / "l1_distance.py").read_text() + "\n\ndef fill(tell):\n    raise AssertionError\n"
    )
    shown = noisette("figures", "l1_distance", "--draw")
    assert shown.code == 0, shown.err
    assert "holds" in shown.out
    assert "plot: experiments/results/l1_distance.png" in shown.out
    assert (folder / "results" / "l1_distance.png").read_bytes().startswith(PNG)
    with pytest.raises(AssertionError):
        noisette("figures", "l1_distance")


def test_ctrl_c_keeps_what_is_done(noisette: Command, folder: Path) -> None:
    with (folder / "l1_distance.py").open("a") as module:
        module.write("\n\ndef fill(tell):\n    tell('long', 1, 9)\n    raise KeyboardInterrupt\n")
    stopped = noisette("figures", "l1_distance", "--json")
    assert (stopped.code, stopped.out) == (1, "")
    assert "finished points are kept" in stopped.err
    assert "Traceback" not in stopped.err
    assert not (folder.parent / "docs").exists()


def test_draw_says_which_points_are_missing(noisette: Command, folder: Path) -> None:
    rewrite(folder, points(folder)[:-1])
    noisette("figures", "l1_distance", "--draw").assert_refused("l1_distance.json has no point", "noisette figures")


def test_a_figure_that_nobody_knows(noisette: Command, folder: Path) -> None:
    noisette("figures", "l2_distance").assert_refused("there is no figure 'l2_distance'", "l1_distance")
    noisette("figures", "best").assert_refused("there is no figure 'best'", "l1_distance")  # its module is not here
    noisette("figures", "kept").assert_refused("there is no figure 'kept'", "l1_distance")


def test_outside_a_clone(noisette: Command) -> None:
    noisette("figures").assert_refused("there are no experiments in experiments", "clone")
    noisette("figures", "l1_distance", "--folder", "none", "--json").assert_refused("in none", "--folder")


def test_another_folder(noisette: Command, folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    value = noisette("figures", "l1_distance", "--folder", "elsewhere", "--draw", "--json").json
    assert value["figures"][0]["picture"] == "elsewhere/results/l1_distance.png"


def test_modules_of_a_folder_do_not_stay(noisette: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kept", sys.modules[__name__])  # another module of that name is in the way
    path = list(sys.path)
    assert noisette("figures", "l1_distance", "--draw").code == 0
    assert sys.modules["kept"] is sys.modules[__name__]
    assert "l1_distance" not in sys.modules
    assert sys.path == path
