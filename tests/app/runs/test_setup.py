"""A run that is killed while it is set up has spent nothing, says so, and goes on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from noisette import _io, read_ledger
from noisette.app.recipes import Recipe
from noisette.app.runs import load, reopen, start
from noisette.errors import InvalidInput, LedgerError
from tests.promises.test_kill import forked
from tests.support.command import Command
from tests.support.helpers import refused
from tests.support.tiny_run import recipe

SPEC = "Scattering(pictures='strokes', axes=20, count=40, scales=1, angles=4, group=1)"
STEPS = 4


@pytest.fixture
def noisette(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


def _killed(root: Path, plan: Recipe, moment: int) -> bool:
    """Set a run up in a process of its own and kill it before sync number `moment`; whether it came so far.

    Whatever a run keeps, its files and its ledgers, is synced to disk, so that these are all moments that can matter.
    """

    def work() -> None:
        honest, calls = os.fsync, [0]

        def sync(file: int) -> None:
            calls[0] += 1
            if calls[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            honest(file)

        os.fsync = sync  # in this process alone
        start(root / "runs", plan, shared=root / "all.jsonl", unsafe=True, people="us").close()

    _, status = os.waitpid(forked(work), 0)
    assert os.WIFSIGNALED(status) or status == 0, "the run failed by itself"
    return os.WIFSIGNALED(status)


def test_killed_at_every_moment_of_its_set_up(
    noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))
    plan = Recipe.load("digits").changed(
        name="tiny",
        noise="Gaussian(scale=9.0)",
        model="linear",
        model_options={},
        features=SPEC,
        steps=STEPS,
        evaluations=1,
    )
    start(tmp_path / "warm", plan).close()  # features and privacy losses are at hand in every child
    moment, stages = 0, []
    while True:
        moment += 1
        root = tmp_path / str(moment)
        root.mkdir()
        if not _killed(root, plan, moment):
            break
        folder = root / "runs" / "tiny-0001"
        if not folder.exists():
            stages.append("no run")
            noisette("resume", folder).assert_refused("there is no folder", "give the folder of a run")
            continue
        left = sorted(path.name for path in folder.iterdir())
        stages.append("begun" if "ledger.jsonl" not in left else "has its ledger")
        for command in (("show", folder), ("predict", folder, "digits")):
            done = noisette(*command)
            done.assert_refused("is not set up yet, so nothing was spent", f"go on with noisette resume {folder}")
        assert sorted(path.name for path in folder.iterdir()) == left
        opened = reopen(folder)
        assert opened.resume() == 0
        assert [point.updates for point in opened.points() if point] == [STEPS]
        opened.close()
        for ledger in (folder / "ledger.jsonl", root / "all.jsonl"):
            assert sum(one.steps for one in read_ledger(ledger).mechanisms()) == STEPS
        assert read_ledger(root / "all.jsonl").population_name == "us", "all of what it was started with is kept"
        assert json.loads((folder / "guarantee.json").read_text())["flags"] == ["unsafe"]
        load(folder)
    assert set(stages) == {"no run", "begun", "has its ledger"}
    assert moment == 10, "two files, the plan, two ledgers with their folders, the map, the settings again"


def test_a_run_without_a_result_is_told_from_one_that_is_not_set_up(noisette: Command, tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=STEPS))
    next(opened.points())
    opened.close()
    done = noisette("show", opened.folder)
    done.assert_refused("has no result yet, and has paid for 1 steps", f"noisette resume {opened.folder}")
    path = opened.folder / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert "was cut short: it counts as 1 steps" in noisette("show", opened.folder).err
    assert path.read_bytes() == whole[:-3]
    path.unlink()
    noisette("show", opened.folder).assert_refused("is missing")
    with refused(LedgerError, match="is missing"):
        reopen(opened.folder)


def test_only_one_process_sets_a_run_up(tmp_path: Path) -> None:
    """Or the one that fails would clear away what the other has made."""
    opened = start(tmp_path, recipe(tmp_path, steps=STEPS))
    opened.close()
    path = opened.folder / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": None, "classes": None}))
    before = {file.name: file.read_bytes() for file in opened.folder.iterdir()}
    handle = os.open(opened.folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with refused(InvalidInput, match="another process is setting up"):
        reopen(opened.folder)
    assert before == {file.name: file.read_bytes() for file in opened.folder.iterdir()}
    os.close(handle)
    reopen(opened.folder).close()
    assert json.loads(path.read_text())["classes"] == 2


def test_a_run_that_was_set_up_needs_all_that_it_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))
    plan = Recipe.load("digits").changed(
        noise="Gaussian(scale=9.0)", model="linear", model_options={}, features=SPEC, steps=STEPS
    )
    opened = start(tmp_path, plan)
    opened.close()
    for name, kind in (("features.pt", InvalidInput), ("mechanism.toml", InvalidInput), ("ledger.jsonl", LedgerError)):
        whole = (opened.folder / name).read_bytes()
        (opened.folder / name).unlink()
        with refused(kind, match=f"has no {name}|is missing"):
            reopen(opened.folder)
        _io.write(opened.folder / name, whole)
    reopen(opened.folder).close()
