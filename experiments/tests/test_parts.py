"""Runs in parts: a run that is killed loses less than a part, and comes to the point of one that was not."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.tests.conftest import EXPERIMENTS, importable
from noisette.app.recipes import Recipe
from noisette.errors import InvalidInput
from tests.support.helpers import refused

pytestmark = pytest.mark.research

SMALL = Recipe.load("digits").changed(
    encoder="Ranked(profiles=PaperGaussian(n=5))", noise="Gaussian(scale=1.0)", steps=30, denoiser="KS()", lr=40.0
)
PART = 8
SCRIPT = f"""
import parts, training
from experiments.tests.test_parts import SMALL
parts.PART = {PART}
training.ensure(SMALL, 3, lambda what, done, total: print(done, flush=True))
"""


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Path]:
    """The experiments in a folder of their own, without results."""
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("results", "beyond", "work", "__pycache__"))
    with importable(folder):
        yield folder


def _started(folder: Path) -> subprocess.Popen[str]:
    paths = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(EXPERIMENTS.parent)!r}]"
    return subprocess.Popen([sys.executable, "-c", f"{paths}\n{SCRIPT}"], stdout=subprocess.PIPE, text=True)


def _steps(process: subprocess.Popen[str], until: int | None = None) -> list[int]:
    """The steps that a process tells of; it is killed at step `until`, whatever it does by then."""
    told: list[int] = []
    assert process.stdout is not None
    for line in process.stdout:
        told.append(int(line))
        if told[-1] == until:
            process.kill()
            break
    process.stdout.close()
    assert process.wait() == (0 if until is None else -signal.SIGKILL)
    return told


def _compared(point: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name not in ("cpu_seconds", "command", "commit")}


def test_killed_and_resumed_it_comes_to_the_same_point(copied: Path) -> None:
    """Draws are those of the parts, so that neither noise nor batches tell whether a run was killed."""
    first = _steps(_started(copied), until=13)
    assert first == list(range(1, 14))
    (checkpoint,) = (copied / "work").glob("*/*.pt")
    assert checkpoint.stem == str(PART)
    second = _steps(_started(copied))
    assert second == list(range(PART + 1, 31))
    assert not list((copied / "work").iterdir())
    parts, training = importlib.import_module("parts"), importlib.import_module("training")
    parts.PART = PART
    whole = training.run(SMALL, 3, lambda *_: None)
    assert _compared(json.loads(json.dumps(whole))) == _compared(*training.RUNS.points)


def test_every_part_draws_its_own(copied: Path) -> None:
    """Under noise that drowns every gradient the distance is that of the noise: no part repeats that of another."""
    parts, training = importlib.import_module("parts"), importlib.import_module("training")
    parts.PART = PART
    drowned = SMALL.changed(noise="Gaussian(scale=1e6)", lr=1e-9)
    point = training.run(drowned, 0, lambda *_: None)
    distances = [distance for _, distance in point["distances"]]
    assert len(set(distances)) == len(distances) == 30


def test_no_step_is_lost_between_parts(copied: Path) -> None:
    """Two steps are paid at a time here, and a part that ended between them would lose those that it has paid for."""
    parts, training = importlib.import_module("parts"), importlib.import_module("training")
    parts.PART = 99
    told: list[int] = []
    training.run(SMALL.changed(steps=250), 0, lambda _what, done, _total: told.append(done))
    assert told == list(range(1, 251))
    (folder,) = (copied / "work").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["200.json", "200.pt"]


def test_a_point_tells_how_it_was_made(copied: Path) -> None:
    training = importlib.import_module("training")
    training.ensure(SMALL.changed(steps=2), 5, lambda *_: None)
    (point,) = training.RUNS.points
    assert point["seed"] == 5
    assert point["command"].startswith("python experiments/")
    assert point["commit"]
    assert point["cpu_seconds"] > 0


def test_one_process_trains_a_run(copied: Path) -> None:
    parts, training = importlib.import_module("parts"), importlib.import_module("training")
    named = parts.Parts(training.key(SMALL, 0) | {"held_out": False})
    with named.alone(), refused(InvalidInput, match="another process is training"):
        training.run(SMALL, 0, lambda *_: None)


def test_points_of_processes_side_by_side_are_all_kept(copied: Path) -> None:
    paths = f"import sys; sys.path[:0] = [{str(copied)!r}]"
    script = "from kept import Kept\nfor number in range(25): Kept('some').add({'of': sys.argv[1], 'number': number})"
    command = [sys.executable, "-c", f"{paths}\n{script}"]
    processes = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [process.wait() for process in processes] == [0, 0, 0]
    points = importlib.import_module("kept").Kept("some").points
    assert sorted((point["of"], point["number"]) for point in points) == [(a, n) for a in "abc" for n in range(25)]


def test_one_series_can_be_trained_by_itself(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = importlib.import_module("long")
    trained: list[tuple[str, ...]] = []
    monkeypatch.setattr(long, "fill", lambda _, names: trained.append(names))
    assert [long.main(given) for given in ([], ["dpsgd"])] == [0, 0]
    assert trained == [long.NAMES, ("dpsgd",)]
    with pytest.raises(SystemExit):
        long.main(["sgd"])


def test_rates_are_tried_alike_and_the_best_has_neighbours(copied: Path) -> None:
    long, rates, series = (importlib.import_module(name) for name in ("long", "rates", "series"))
    training = importlib.import_module("training")
    rights = {0.5: 48.0, 0.25: 50.0, 0.125: 51.0, 0.0625: 49.0, 160.0: 51.0, 80.0: 52.0, 40.0: 50.0}
    tried: list[tuple[str, float]] = []
    while wanted := [(name, rate) for name in long.NAMES if (rate := long.next_rate(name)) is not None]:
        for name, rate in wanted:
            assert series.SERIES[name].rate(series.FULL) is None
            assert not series.SERIES[name].kept(1.1, series.FULL)
            point = training.key(series.SERIES[name].trial().changed(lr=rate), 0)
            rates.KEPT.add(point | {"accuracy": rights[rate]})
        tried += wanted
    assert [name for name, _ in tried] == [*long.NAMES * 3, "dpsgd"]
    assert rates.chosen(series.SERIES["dpsgd"].trial()) == 0.125
    assert series.SERIES["dpsgd"].rate(series.FULL) == 0.0625
    for name in long.NAMES[:2]:
        assert series.SERIES[name].recipe(0.7, series.FULL).lr == 40.0
    assert series.SERIES["dpsgd"].recipe(1.1, series.FULL).steps == 19531
