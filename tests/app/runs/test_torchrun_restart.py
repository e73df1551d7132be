"""Runs that torchrun starts again are told from new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisette.app.recipes import Recipe
from noisette.app.runs import OpenRun, start
from noisette.app.runs.torchrun_restart import launch
from noisette.errors import InvalidInput
from tests.support.helpers import refused
from tests.support.tiny_run import recipe


def _under_torchrun(
    monkeypatch: pytest.MonkeyPatch, *, run: str = "none", folder: str = "none_x", again: int = 0
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", run)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/tmp/torchelastic_q/{folder}/attempt_{again}/0/error.json")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(again))


def _started(root: Path, plan: Recipe, steps: int) -> OpenRun:
    opened = start(root, plan)
    for _ in opened.points():
        if opened.private.num_updates == steps:
            break
    opened.save()
    opened.close()
    return opened


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert launch() is None
    _under_torchrun(monkeypatch, run="job7")
    assert launch() == "job7"
    _under_torchrun(monkeypatch, folder="none_k3j2")
    assert launch() == "none_k3j2"
    _under_torchrun(monkeypatch, folder="none_k3j2", again=3)
    assert launch() == "none_k3j2", "the same after a restart"


def test_started_again_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = recipe(tmp_path, steps=6)
    _under_torchrun(monkeypatch)
    assert _started(tmp_path, plan, 2).folder.name == "tiny-0001"
    assert json.loads((tmp_path / "tiny-0001" / "settings.json").read_text())["launch"] == "none_x"
    _under_torchrun(monkeypatch, again=1)
    opened = _started(tmp_path, plan, 6)
    assert (opened.folder.name, opened.private.num_updates) == ("tiny-0001", 6)
    assert opened.complete
    _under_torchrun(monkeypatch, again=2)
    assert _started(tmp_path, plan, 6).folder.name == "tiny-0001", "nothing is left to do, and no new run begins"


def test_another_torchrun_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = recipe(tmp_path, steps=6)
    _under_torchrun(monkeypatch)
    _started(tmp_path, plan, 2)
    _under_torchrun(monkeypatch, folder="none_y", again=1)
    assert _started(tmp_path, plan, 2).folder.name == "tiny-0002"
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert _started(tmp_path, plan, 2).folder.name == "tiny-0003"


def test_a_job_with_a_name_goes_on_until_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a queue that starts the same job again needs; the count of restarts is 0 then."""
    plan = recipe(tmp_path, steps=6)
    _under_torchrun(monkeypatch, run="job7", folder="a")
    _started(tmp_path, plan, 2)
    _under_torchrun(monkeypatch, run="job7", folder="b")
    assert _started(tmp_path, recipe(tmp_path, steps=8), 8).folder.name == "tiny-0002", "another recipe, another run"
    assert _started(tmp_path, plan, 6).folder.name == "tiny-0001"
    assert _started(tmp_path, plan, 2).folder.name == "tiny-0003"


def test_a_recipe_that_was_changed_before_a_restart_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _under_torchrun(monkeypatch)
    _started(tmp_path, recipe(tmp_path, steps=6), 2)
    _under_torchrun(monkeypatch, again=1)
    with refused(InvalidInput, match="the recipe is another one"):
        start(tmp_path, recipe(tmp_path, steps=7))
