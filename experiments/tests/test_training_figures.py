"""The training figures: runs are kept and not repeated, and every number shown is read from what is kept."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from noisette import Mechanism, Released
from noisette.accounting.rdp import ORDERS, renyi
from noisette.app.recipes import Recipe
from noisette.denoisers import KS
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from tests.support.helpers import refused

pytestmark = pytest.mark.research

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FIGURES = ("fixed_epochs", "best", "trajectory", "convergence", "denoising")
SMALL = Recipe.load("digits").changed(
    encoder="Ranked(profiles=PaperGaussian(n=5))", noise="Gaussian(scale=1.0)", steps=3, denoiser="KS()", lr=40.0
)


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Path]:
    """The experiments in a folder of their own, without results, and importable from there."""
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("results", "beyond", "work", "__pycache__"))
    names = [path.stem for path in folder.glob("*.py")]
    aside = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(aside)


def _quiet(what: str, done: int, total: int) -> None:
    """Progress for nobody."""


def _made_up(name: str, scale: float, seed: int, end: float, data: str = "mnist") -> dict[str, Any]:
    """A kept run of a series whose accuracy falls by 20 / t from `end`: numbers to be found again, not results."""
    training, series = importlib.import_module("training"), importlib.import_module("series")
    steps = [234, 468, 702, 1404, 2808, 7020, 14062]
    curve = [(step, round(end - 2000 / step, 2)) for step in steps]
    point: dict[str, Any] = training.key(series.SERIES[name].recipe(scale, data), seed)
    point |= {"parameters": 26_010, "accuracy": curve[-1][1], "curve": curve, "cpu_seconds": 1.0}
    if point["denoiser"] == "KS()":
        point |= {"mean_distance": 0.006, "distances": [(step, 0.02 if step < 1000 else 0.0054) for step in steps]}
    return point | {"epsilon_rdp": 3.0, "epsilon_pld": 2.4}


def _fill(ends: dict[str, float]) -> None:
    """Keep made-up runs of the headline points."""
    training, series = importlib.import_module("training"), importlib.import_module("series")
    for name, end in ends.items():
        training.RUNS.add(_made_up(name, series.SERIES[name].headline, 0, end))


ENDS = {
    "encoded_student_t": 96.5,
    "encoded_gaussian": 96.0,
    "dpsgd": 96.9,
    "dpsgd_weak": 94.5,
    "student_t_matched": 96.4,
    "student_t_weak": 94.0,
}


def _best_points() -> None:
    """What the search would give, in no time."""
    best, paper = importlib.import_module("best"), importlib.import_module("paper")
    best.KEPT.rewrite(
        [
            {
                "series": name, "budget": float(budget), "accuracy": 95.0 + budget / 4, "noise": "Gaussian(scale=1.1)",
                "lr": 0.25, "steps": 14062, "epsilon": 3.0, "settings": 3, "epsilon_alone": 2.5,
                "epsilon_searched": 3.75,
            }
            for name in best.NAMES
            for budget in paper.curve("best_mnist", name)[1]
        ]
    )  # fmt: skip


def test_a_run_is_a_point_with_its_settings(copied: Path) -> None:
    training = importlib.import_module("training")
    told: list[tuple[int, int]] = []
    training.ensure(SMALL, 0, lambda _what, done, total: told.append((done, total)))
    (point,) = json.loads((copied / "results" / "runs.json").read_text())
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert {name: point[name] for name in training.key(SMALL, 0)} == training.key(SMALL, 0)
    assert point["curve"][-1] == [3, point["accuracy"]]
    assert 0 <= point["accuracy"] <= 100
    assert [step for step, _ in point["distances"]] == [1, 2, 3]
    assert point["mean_distance"] == pytest.approx(np.mean([d for _, d in point["distances"]]), abs=1e-6)
    assert 0 < point["epsilon_pld"] < point["epsilon_rdp"]


def test_what_is_kept_is_not_run_again(copied: Path) -> None:
    training = importlib.import_module("training")
    training.ensure(SMALL, 0, _quiet)
    before = training.RUNS.path.read_bytes()
    told: list[int] = []
    training.ensure(SMALL, 0, lambda _what, done, _total: told.append(done))
    assert told == []
    assert training.RUNS.path.read_bytes() == before
    training.ensure(SMALL, 1, lambda _what, done, _total: told.append(done))
    assert told == [1, 2, 3]
    assert [point["seed"] for point in training.RUNS.points] == [0, 1]
    assert training.RUNS.points[0]["distances"] != training.RUNS.points[1]["distances"]


def test_seeds_draw_other_noise(copied: Path) -> None:
    """Under noise that drowns every gradient the distance is that of the noise alone."""
    training = importlib.import_module("training")
    drowned = SMALL.changed(noise="Gaussian(scale=1e6)", lr=1e-9)
    first, second = (np.array(training.run(drowned, seed, _quiet)["distances"]) for seed in (0, 1))
    assert np.abs(first - second).max() > 1e-4


def test_runs_can_be_repeated(copied: Path) -> None:
    training = importlib.import_module("training")
    points = [training.run(SMALL, 3, _quiet) for _ in range(2)]
    for point in points:
        del point["cpu_seconds"]
    assert points[0] == points[1]


def test_held_out_runs_see_no_test_example(copied: Path) -> None:
    """Their epsilon is that of five sixths of the examples, a higher rate."""
    training = importlib.import_module("training")
    whole, held = training.run(SMALL, 0, _quiet), training.run(SMALL, 0, _quiet, held_out=True)
    assert held["epsilon_rdp"] > whole["epsilon_rdp"]


def test_the_traced_denoiser_is_the_library_s(copied: Path) -> None:
    training = importlib.import_module("training")
    noise = StudentT(df=9, scale=1.0)
    values = torch.from_numpy(stats.t(9, loc=0.1).rvs(500, random_state=5))
    released = Released(values, noise, reproducible=True)
    traced, plain = training.TracedKS(), KS()
    ours, state = traced.update(released, traced.init(noise, 500))
    theirs, _ = plain.update(released, plain.init(noise, 500))
    assert torch.equal(ours.values, theirs.values)
    assert float(state["distance"]) == plain.distance(released)


def test_a_full_plan_trains_nothing(copied: Path) -> None:
    training, series = importlib.import_module("training"), importlib.import_module("series")
    for data in ("mnist", "cifar10"):
        for name, scale, seed in series.PLAN[data]:
            training.RUNS.add(_made_up(name, scale, seed, 96.0, data))
    told: list[str] = []
    for figure in ("fixed_epochs", "trajectory", "convergence", "denoising"):
        importlib.import_module(figure).fill(lambda what, _done, _total: told.append(what))
    assert told == []


def test_the_plan_has_what_the_figures_need(copied: Path) -> None:
    """Three noise levels of the encoded series and of DPSGD; on MNIST three seeds of the headline points."""
    series = importlib.import_module("series")
    plan = series.PLAN["mnist"]
    assert len(plan) == len(set(plan))
    for name in ("encoded_student_t", "encoded_gaussian", "dpsgd"):
        headline = series.SERIES[name].headline
        assert {seed for found, scale, seed in plan if (found, scale) == (name, headline)} == {0, 1, 2}
        for planned in series.PLAN.values():
            assert len({scale for found, scale, _ in planned if found == name}) >= 3
    assert {name for name, *_ in plan} == set(series.SERIES)


def test_the_matched_rate_is_the_mean_step(copied: Path) -> None:
    _fill({"encoded_student_t": 96.5})
    series = importlib.import_module("series")
    denoised = series.SERIES["encoded_student_t"].recipe(1.0)
    assert series.SERIES["student_t_matched"].recipe(1.0).lr == pytest.approx(denoised.lr * 0.006)


def _rates(highest: float) -> None:
    """Keep made-up held-out runs of every rate, that of the figures times `highest` the best."""
    rates, training = importlib.import_module("learning_rates"), importlib.import_module("training")
    points = [training.key(recipe, 0) for recipe in rates.plan()]
    used = {(point["data"], point["encoder"]): point["lr"] for point in points[:4]}
    for point in points:
        point["accuracy"] = 97.0 if point["lr"] == highest * used[point["data"], point["encoder"]] else 96.0
    rates.KEPT.rewrite(points)


def test_learning_rates_are_read_from_what_is_kept(copied: Path) -> None:
    _rates(highest=1.0)
    rates = importlib.import_module("learning_rates")
    rates.draw()
    assert (copied / "results" / "learning_rates.png").stat().st_size > 10_000
    assert rates.section().count("| 97.00 | that of the figures, highest |") == 4
    assert rates.best("mnist", "dpsgd") == 0.25
    assert "the best of them everywhere" in rates.section()
    _rates(highest=2.0)
    assert rates.section().count("| 96.00 | that of the figures |") == 4
    assert rates.section().count("| 97.00 | highest |") == 4
    assert rates.best("mnist", "dpsgd") == 0.5
    assert "DPSGD, tuned rate on MNIST, where 0.5 is 1.00 points better" in rates.section()


def test_learning_rates_train_what_is_missing(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _rates(highest=1.0)
    rates = importlib.import_module("learning_rates")
    points = rates.KEPT.points
    told: list[str] = []
    rates.fill(lambda what, _done, _total: told.append(what))
    assert told == []
    rates.KEPT.rewrite(points[1:])
    asked: list[tuple[float, bool]] = []

    def ensured(recipe: Recipe, _seed: int, _tell: object, *, kept: Any, held_out: bool) -> None:
        if not kept.has(**importlib.import_module("training").key(recipe, 0)):
            asked.append((recipe.lr, held_out))

    monkeypatch.setattr(rates, "ensure", ensured)
    rates.fill(_quiet)
    assert asked == [(points[0]["lr"], True)]


@pytest.mark.parametrize("figure", FIGURES)
def test_claims_and_sections_are_read_from_what_is_kept(copied: Path, figure: str) -> None:
    _fill(ENDS)
    _best_points()
    module = importlib.import_module(figure)
    module.draw()
    assert (copied / "results" / f"{figure}.png").stat().st_size > 10_000
    claims, section = module.claims(), module.section()
    assert claims
    assert f"experiments/figures.py {figure}" in section
    assert f"results/{figure}.png" in section
    for name in ("runs", "best"):
        path = copied / "results" / f"{name}.json"
        points = json.loads(path.read_text())
        for point in points:
            point["accuracy"] -= 1.0
            point["curve"] = [(step, right - 1.0) for step, right in point.get("curve", [])]
        path.write_text(json.dumps(points))
    assert module.section() != section
    assert module.claims() != claims


@pytest.mark.parametrize("figure", ["fixed_epochs", "trajectory", "convergence", "denoising"])
def test_figures_show_what_there_is(copied: Path, figure: str) -> None:
    """Before all runs are kept, the picture and the section hold those that are."""
    _fill({"encoded_student_t": 96.5})
    module = importlib.import_module(figure)
    module.draw()
    assert "96.36" in module.section() or figure == "convergence"
    assert "DPSGD, tuned rate" not in module.section()


def test_verdicts_follow_the_numbers(copied: Path) -> None:
    fixed = importlib.import_module("fixed_epochs")
    _fill(ENDS)
    reached, _, gain, *_ = fixed.claims()
    assert reached.verdict.startswith("holds")
    assert gain.verdict.startswith("partly")
    path = copied / "results" / "runs.json"
    runs = json.loads(path.read_text())
    for run in runs:
        run["accuracy"] -= 3.0 if run["encoder"].startswith("Ranked") else 4.0
    path.write_text(json.dumps(runs))
    reached, _, gain, *_ = fixed.claims()
    assert reached.verdict.startswith("does not hold")
    assert gain.verdict.startswith("holds")


def test_cifar10_has_a_claim_of_its_own(copied: Path) -> None:
    training, trajectory = importlib.import_module("training"), importlib.import_module("trajectory")
    _fill(ENDS)
    assert len(trajectory.claims()) == 1
    training.RUNS.add(_made_up("encoded_student_t", 1.0, 0, 50.0, "cifar10"))
    training.RUNS.add(_made_up("dpsgd", 1.1, 0, 51.5, "cifar10"))
    _, claim = trajectory.claims()
    assert claim.verdict == "does not hold: -1.50 points"


def test_iterations_to_reach(copied: Path) -> None:
    convergence = importlib.import_module("convergence")
    steps, found = np.array([1.0, 2.0, 3.0]), np.array([50.0, 80.0, 70.0])
    assert [convergence.reached(steps, found, level) for level in (50.0, 75.0, 81.0)] == [1, 2, math.inf]
    assert convergence.papers("dpsgd", 93.0) == 5148
    assert convergence.papers("dpsgd", 96.0) == math.inf


def test_the_band_of_pure_noise(copied: Path) -> None:
    """Of 1,000 distances on pure noise 900 lie in the band, give or take 40: four standard deviations, 1 in 16,000."""
    denoising = importlib.import_module("denoising")
    low, high = denoising.band(2_000)
    noise, rng = StudentT(df=9, scale=1.0), np.random.default_rng(7)
    distances = np.array(
        [
            KS().distance(Released(torch.from_numpy(rng.standard_t(9, 2_000)), noise, reproducible=True))
            for _ in range(1_000)
        ]
    )
    assert abs(int(((distances >= low) & (distances <= high)).sum()) - 900) <= 40


@pytest.mark.parametrize("mean", [1, 3, 20])
def test_the_price_of_a_search_is_dp_accounting_s(copied: Path, mean: int) -> None:
    search = importlib.import_module("search")
    ours = search.repeated(renyi((Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=256 / 60000, steps=2000),)), mean)
    event = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(1.1))
    accountant = RdpAccountant(orders=ORDERS.tolist())
    accountant.compose(RepeatAndSelectDpEvent(dp_accounting.SelfComposedDpEvent(event, 2000), mean, math.inf))
    assert search.reference.compute_epsilon(ORDERS, ours, 1e-5)[0] == pytest.approx(accountant.get_epsilon(1e-5))


def test_the_search_keeps_to_the_budget(copied: Path) -> None:
    search = importlib.import_module("search")
    _fill({"dpsgd": 96.9, "dpsgd_weak": 94.5})
    runs = search.candidates("dpsgd")
    assert len(runs) == 2
    small, large = (search.best("dpsgd", budget, runs) for budget in (1.5, 7.5))
    assert small["epsilon"] <= 1.5
    assert (large["steps"], large["accuracy"], large["lr"]) == (14062, 96.76, 0.25)
    assert small["steps"] < large["steps"]
    assert large["epsilon"] == pytest.approx(3.009, abs=1e-3)
    assert small["epsilon_searched"] > small["epsilon_alone"]


def test_kept_points_are_named_by_their_parts(copied: Path) -> None:
    kept = importlib.import_module("kept")
    store = kept.Kept("some")
    assert not store.has(sigma=1.1)
    store.add({"sigma": 1.1, "seed": 0, "curve": [1, 2]})
    store.add({"sigma": 1.1, "seed": 1, "curve": [3, 4]})
    assert store.find(sigma=1.1, seed=1)["curve"] == [3, 4]
    assert len(store.all(sigma=1.1)) == 2
    assert (copied / "results" / "some.json").read_text().count("\n") == 4
    with refused(InvalidInput, match="no point"):
        store.find(sigma=1.2)
    with refused(InvalidInput, match="verdict"):
        kept.Claim("c", "p", "o", "maybe")
