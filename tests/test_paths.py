"""Text that names a file or a folder is as good as a Path, relative or not, wherever a path comes in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from noisette import _io, tradeoff
from noisette.accounting.num_trials import num_trials_from_name
from noisette.app.features import Scattering, fit_cached, transform_cached
from noisette.app.recipes import Recipe
from noisette.app.reports.accuracy import draw_accuracy
from noisette.app.reports.index import Index
from noisette.app.reports.run import Run
from noisette.app.reports.tradeoff import draw_tradeoff
from noisette.app.runs import new_folder, reopen, start
from noisette.app.tuning import resume_search, start_search
from tests.support.small_searches import GRID, by_public_score
from tests.support.tiny_run import gaussian, network, recipe, trainer_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_checkpoint() -> None:
    trainer = trainer_of(gaussian(steps=2))
    next(trainer.run())
    trainer.save("text.pt")
    again = trainer_of(gaussian(steps=2))
    again.load("text.pt")
    assert again.private.num_updates == 1
    again.restore(_io.load("text.pt"), "text.pt")


def test_a_run_and_its_pages() -> None:
    plan = recipe(Path.cwd(), steps=2, evaluations=1)
    opened = start("runs", plan, data_root=".", shared="shared.jsonl", people="rows")
    taken = opened.points()
    next(taken)
    opened.close()
    again = reopen(str(opened.folder), data_root=".")
    again.resume()
    for _ in again.points():
        pass
    again.close()
    assert Run.read(str(opened.folder)).folder == opened.folder
    assert [run.folder.name for run in Index.read("runs").runs] == [opened.folder.name]
    assert draw_accuracy(str(opened.folder)).is_file()
    assert Recipe.from_toml(_io.text("runs/tiny-0001/recipe.toml"), "runs/tiny-0001/recipe.toml").name == "tiny"


def test_a_search() -> None:
    options = by_public_score(Path.cwd())
    how = {
        "epsilon": 3.0,
        "trials": num_trials_from_name("geometric", 1.5),
        "data_root": ".",
        "shared": "all.jsonl",
        "seed": 4,
    }
    folder = start_search("searches", options.pop("recipe"), GRID, **how, **options)
    assert resume_search(str(folder), seed=4).guarantee.epsilon <= 3


def test_files_and_pictures() -> None:
    assert new_folder("new/runs", "some", {"a.txt": "b"}).name == "some-0001"
    assert _io.raw("new/runs/some-0001/a.txt") == b"b"
    model = network()
    _io.save("model.pt", model.state_dict())
    _io.fill(model, _io.load("model.pt"), "model.pt")
    assert draw_tradeoff({"one": tradeoff(gaussian())}, "pictures/one.png") == Path("pictures/one.png")
    fixed = fit_cached(Scattering(pictures="strokes", axes=20, count=30), (1, 16, 16), "cache")
    Path("cache").mkdir(exist_ok=True)
    assert transform_cached(fixed, torch.rand(2, 1, 16, 16), "cache").shape == (2, 20)
