"""The folder of a run: all that is needed to go on and to use the model, and errors that say what is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import noisette
from noisette.accounting import Ledger
from noisette.accounting.pld import privacy_loss
from noisette.app.datasets import population
from noisette.app.runs import OpenRun, new_folder, reopen, start
from noisette.errors import InvalidInput, LedgerError, MechanismMismatch
from tests.support.helpers import refused
from tests.support.tiny_run import recipe, room


def _begun(folder: Path, steps: int = 3) -> OpenRun:
    opened = start(folder, recipe(folder, steps=6, evaluations=6))
    for _ in opened.points():
        if opened.private.num_updates == steps:
            break
    opened.close()
    return opened


def test_folders_are_numbered(tmp_path: Path) -> None:
    made = [new_folder(tmp_path / "runs", name, {}).name for name in ("a", "a", "b", "a")]
    assert made == ["a-0001", "a-0002", "b-0001", "a-0003"]


def test_a_run_and_its_module(tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=6, evaluations=2))
    points = [point for point in opened.points() if point]
    opened.close()
    assert [point.updates for point in points] == [3, 6]
    lines = [json.loads(line) for line in (tmp_path / "tiny-0001" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epsilon"] for line in lines] == [point.epsilon for point in points]
    model = noisette.app.runs.load(tmp_path / "tiny-0001")
    assert not model.training
    x = torch.randn(5, 2)
    assert torch.equal(model(x), opened.trainer.evaluated.eval()(x))


def test_points_are_not_crowded_when_steps_are_paid_ahead(tmp_path: Path) -> None:
    """Of 420 steps three are paid at a time, so that all are paid before the last two are taken."""
    opened = start(tmp_path, recipe(tmp_path, steps=420, evaluations=2))
    assert [point.updates for point in opened.points() if point] == [210, 420]
    opened.close()


def test_going_on(tmp_path: Path) -> None:
    before = _begun(tmp_path)
    opened = reopen(before.folder)
    assert opened.mechanism == before.mechanism
    assert opened.resume() == 0
    assert [point.updates for point in opened.points() if point] == [4, 5, 6]
    opened.close()


def test_a_run_that_had_a_seed_stays_marked(tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=2), seed=1)
    next(opened.points())
    opened.close()
    again = reopen(opened.folder)
    again.resume()
    assert not again.private.reproducible, "fresh noise"
    list(again.points())
    again.close()
    assert json.loads((opened.folder / "guarantee.json").read_text())["flags"] == ["reproducible"]
    assert all(json.loads(line)["flags"] for line in (opened.folder / "metrics.jsonl").read_text().splitlines())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=2))
    with refused(LedgerError, match="in use"):
        reopen(opened.folder)
    opened.close()
    reopen(opened.folder).close()


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = _begun(tmp_path).folder
    for name in ("settings.json", "recipe.toml"):
        os.rename(folder / name, tmp_path / name)
        with refused(InvalidInput, match=f"has no {name}"):
            reopen(folder)
        with refused(InvalidInput, match=f"has no {name}"):
            noisette.app.runs.load(folder)
        os.rename(tmp_path / name, folder / name)
    (folder / "model.pt").unlink()
    with refused(InvalidInput, match="has no model.pt"):
        noisette.app.runs.load(folder)
    (folder / "ledger.jsonl").unlink()
    with refused(LedgerError, match="missing"):
        reopen(folder)


def test_a_ledger_that_is_gone_or_empty_does_not_become_a_new_one(tmp_path: Path) -> None:
    shared = tmp_path / "all.jsonl"
    opened = start(tmp_path, recipe(tmp_path, steps=6, evaluations=6), shared=shared)
    next(opened.points())
    opened.close()
    for path in (opened.folder / "ledger.jsonl", shared):
        whole = path.read_bytes()
        path.write_bytes(b"")
        with refused(LedgerError, match="is empty"):
            reopen(opened.folder)
        assert path.read_bytes() == b""
        path.unlink()
        with refused(LedgerError, match="is missing"):
            reopen(opened.folder)
        assert not path.exists()
        path.write_bytes(whole)
    reopen(opened.folder).close()


def test_a_run_goes_on_wherever_its_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the people was settled when it began."""
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    recipe(Path())
    opened = start(Path("runs"), recipe(Path(), steps=3), shared=Path("all.jsonl"))
    next(opened.points())
    opened.close()
    assert opened.settings.people == f"csv:{tmp_path / 'old' / 'table.csv'}"
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    with refused(InvalidInput, match="No such file"):  # that this is the same table only its owner can know
        reopen(Path("runs/tiny-0001"))
    path = Path("runs/tiny-0001/recipe.toml")
    path.write_text(path.read_text().replace(str(tmp_path / "old"), str(tmp_path / "new")))
    again = reopen(Path("runs/tiny-0001"))
    again.resume()
    list(again.points())
    again.close()
    assert again.settings.people == opened.settings.people


def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> OpenRun:
    """A run on a table by its relative path; we are then in another folder, with another table of that name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    opened = start(tmp_path, recipe(Path(), steps=3), **options)
    next(opened.points())
    opened.close()
    text = Path("table.csv").read_text()
    monkeypatch.chdir(tmp_path / "there")
    Path("table.csv").write_text(text.replace(".", "7."))
    return opened


def test_a_run_is_resumed_on_the_table_that_it_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = _elsewhere(tmp_path, monkeypatch, people="ward 7")
    again = reopen(opened.folder)
    again.close()
    assert torch.equal(again.seen.data.train_inputs, opened.seen.data.train_inputs)


def test_a_path_that_leads_to_another_table_from_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions kept it in the folder of a run."""
    opened = _elsewhere(tmp_path, monkeypatch)
    path = opened.folder / "recipe.toml"
    path.write_text(path.read_text().replace(f"csv:{tmp_path}/here/", "csv:"))
    before = (opened.folder / "ledger.jsonl").read_bytes()
    with refused(InvalidInput, match="from here its csv:table.csv:label:0.2 is another file"):
        reopen(opened.folder)
    assert (opened.folder / "ledger.jsonl").read_bytes() == before
    monkeypatch.chdir(tmp_path / "here")
    reopen(opened.folder).close()


def test_another_mechanism_in_the_folder_is_refused(tmp_path: Path) -> None:
    folder = _begun(tmp_path).folder
    path = folder / "mechanism.toml"
    path.write_text(path.read_text().replace("steps = 6", "steps = 7"))
    with refused(MechanismMismatch):
        reopen(folder)


def test_a_bad_start_leaves_no_folder_and_no_lock(tmp_path: Path) -> None:
    shared = tmp_path / "all.jsonl"
    with refused(InvalidInput, match="dimension 5"):
        start(tmp_path / "runs", recipe(tmp_path, encoder="L2(dim=5)"), shared=shared)
    assert not (tmp_path / "runs").exists()
    Ledger(shared, data=population(recipe(tmp_path).data)).close()


@pytest.mark.parametrize("size", [0, 700, 2500])
def test_a_full_disk_in_the_middle_of_a_run(tmp_path: Path, size: int) -> None:
    """Whatever file it strikes first: an error with a hint, and a run that goes on when there is room again."""
    folder = _begun(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    opened = reopen(folder)
    opened.resume()
    with refused(match="cannot be written"), room(size):
        list(opened.points())
    opened.close()
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys()
    assert after["ledger.jsonl"].startswith(before["ledger.jsonl"])
    assert after["checkpoint.pt"] == before["checkpoint.pt"]
    again = reopen(folder)
    again.resume()
    list(again.points())
    again.close()
    assert again.private.steps_paid == 6
    assert json.loads((folder / "guarantee.json").read_text())["paid"] == 6


def test_epsilons_of_all_points_come_from_one_composition(tmp_path: Path) -> None:
    """Of 220 steps two are paid at a time. Each epsilon is that of the steps paid, also behind lost ones.

    To compose once for each point took longer than a small run itself.
    """
    plan = recipe(tmp_path, steps=220, evaluations=5, noise="Gaussian(scale=4.0)")
    opened = start(tmp_path, plan)
    composed = privacy_loss.cache_info().misses
    points = []
    for point in opened.points():
        points += [point] if point else []
        if opened.private.num_updates == 70:
            break
    opened.close()
    again = reopen(opened.folder)
    again.resume()
    points += [point for point in again.points() if point]
    again.close()
    assert privacy_loss.cache_info().misses == composed
    assert len(points) == 5
    assert any(point.paid > point.updates for point in points)
    for point in points:
        promise = noisette.guarantee(opened.mechanism.replace(steps=point.paid), plan.delta)
        assert point.epsilon == pytest.approx(promise.epsilon, rel=1e-6)
        assert f"{point.epsilon:.4g}" == f"{promise.epsilon:.4g}"
    assert json.loads((again.folder / "guarantee.json").read_text())["epsilon"] == promise.epsilon
