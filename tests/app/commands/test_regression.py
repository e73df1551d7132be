"""Every command with a recipe that learns a number, and the names of labels in `predict`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error

from tests.app.recipes.test_tasks import HIGH, LOW, NUMBERS, table
from tests.support.command import Command

PLAIN = ("--noise", "Gaussian(scale=8.0)", "--steps", "30")  # which takes no planning
TRAIN = ("train", "regression", "--data", "csv:t.csv:y:0.2", *PLAIN, "--seed", "1")
BOUNDS = ("--target-bounds", f"{LOW},{HIGH}")


def test_every_command_knows_numbers(noisette: Command, tmp_path: Path) -> None:
    features, numbers = table(tmp_path / "t.csv")
    noisette("train", "tabular", *TRAIN[2:]).assert_refused("holds numbers that are not integers", "--task regression")
    noisette("train", "tabular", *TRAIN[2:], "--task", "regression").assert_refused(
        "needs public bounds", "--target-bounds"
    )
    noisette("train", "--task", "regression", *BOUNDS).assert_refused("'digits' has labels", "csv:PATH:TARGET")
    told = noisette(*TRAIN, *BOUNDS, "--json").json
    assert "accuracy" not in told
    folder, error = told["run"], told["mean_absolute_error"]
    assert 0 < error < 10
    assert noisette("show", folder, "--json").json["mean_absolute_error"] == error
    assert f"Test mean absolute error: {error:.4g}" in noisette("show", folder, "--statement").out

    found = noisette("predict", folder, "csv:t.csv:y:0.2", "--json").json
    assert found["mean_absolute_error"] == pytest.approx(error, rel=1e-5)
    np.save(tmp_path / "rows.npy", features)
    rows = noisette("predict", folder, "rows.npy", "--json").json["predictions"]
    assert set(found["predictions"]) <= set(rows)
    assert mean_absolute_error(numbers[3:], rows[3:]) < 10
    noisette("predict", folder, "digits").assert_refused("'digits' has labels")
    noisette("predict", folder, "csv:t.csv:y").assert_refused("has no test part", "0.2")

    noisette("report", folder, "--json")
    page = (tmp_path / folder / "page.html").read_text()
    assert f"{error:.4g}" in page
    assert "Test mean absolute error" in page
    assert "accuracy" not in page
    assert noisette("report", "runs", "--json").json["runs"][0]["mean_absolute_error"] == error
    assert f"mean absolute error {error:.4g}" in (tmp_path / "runs" / "index.html").read_text()


def mine(tmp_path: Path) -> str:
    """A recipe for numbers, and its table."""
    table(tmp_path / "t.csv")
    recipe = NUMBERS.changed(data="csv:t.csv:y:0.2", target_bounds=(LOW, HIGH), steps=4, epsilon=3.0)
    (tmp_path / "mine.toml").write_text(recipe.to_toml())
    return "mine.toml"


def test_audit_with_numbers(noisette: Command, tmp_path: Path) -> None:
    told = noisette("audit", "--one-run", mine(tmp_path), "--canaries", "20", "--seed", "1", "--json").json
    assert (told["canaries"], told["verdict"]) == (20, "consistent with the claim")


def test_other_data_comes_with_bounds_of_its_own(noisette: Command, tmp_path: Path) -> None:
    recipe = mine(tmp_path)
    table(tmp_path / "other.csv")
    tune = ("--epsilon", "6", "--trials", "2", "--grid", "lr=1,4", "--seed", "3")
    for command in (TRAIN, ("train", recipe, "--data", "csv:other.csv:y"), ("tune", *TRAIN[1:4], *tune)):
        noisette(*command).assert_refused("are those of its own data", "--target-bounds LOW,HIGH")
    assert not (tmp_path / "runs").exists(), "nothing was spent"
    noisette("tune", *TRAIN[1:4], *BOUNDS, *tune, "--held-out", "2").assert_refused("held_out is")
    noisette(*TRAIN, "--task", "classification").assert_refused("and nothing else takes them")
    assert noisette("train", recipe, "--seed", "1").code == 0
    assert noisette("train", recipe, "--data", "csv:t.csv:y:0.2", "--seed", "1").code == 0, "which is its own"


@pytest.mark.slow
def test_tune_with_numbers(noisette: Command, tmp_path: Path) -> None:
    tune = (
        "tune",
        mine(tmp_path),
        "--epsilon",
        "6",
        "--trials",
        "2",
        "--trial-distribution",
        "geometric",
        "--grid",
        "lr=1,4",
    )
    table(tmp_path / "other.csv", rows=50)
    for how in ((), ("--score", "public", "--public", "csv:other.csv:y")):
        told = noisette(*tune, *how, "--seed", "3", "--json").json
        assert told["score"] == pytest.approx(1 - told["mean_absolute_error"] / (HIGH - LOW), abs=0.2)


def test_the_table_that_is_trained_on_is_not_public_under_another_name(noisette: Command, tmp_path: Path) -> None:
    tune = ("tune", mine(tmp_path), "--epsilon", "6", "--trials", "2", "--grid", "lr=1,4", "--score", "public")
    for name in ("csv:t.csv:y:0.2", "csv:t.csv:y", "csv:./t.csv:a"):
        noisette(*tune, "--public", name).assert_refused("is what the runs are trained on", "hold out")


def test_labels_keep_their_names(noisette: Command, tmp_path: Path) -> None:
    rows = [(x, "high" if x > 0 else "low") for x in np.linspace(-1, 1, 300).round(3)]
    (tmp_path / "t.csv").write_text("x,kind\n" + "".join(f"{x},{kind}\n" for x, kind in rows))
    train = ("train", "tabular", "--data", "csv:t.csv:kind:0.3", *PLAIN, "--seed", "1", "--json")
    told = noisette(*train).json
    folder = tmp_path / told["run"]
    assert json.loads((folder / "settings.json").read_text())["labels"] == ["high", "low"]
    np.save(tmp_path / "ends.npy", np.array([[-1.0], [1.0]]))
    assert noisette("predict", folder, "ends.npy").out.split() == ["low", "high"]
    assert noisette("predict", folder, "csv:t.csv:kind:0.3", "--json").json["accuracy"] == told["accuracy"]
    # a table of other labels, in which "low" has another number: names decide what is right
    (tmp_path / "more.csv").write_text("x,kind\n" + "".join(f"{-x:.3f},low\n{x:.3f},zzz\n" for x, _ in rows if x > 0.2))
    found = noisette("predict", folder, "csv:more.csv:kind:0.9", "--json").json
    assert found["accuracy"] == found["predictions"].count("low") / len(found["predictions"]) > 0.3
