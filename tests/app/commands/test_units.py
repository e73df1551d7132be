"""People and not rows, from the command line; and batches that are cut."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from noisette.app.datasets import Dataset
from noisette.errors import InvalidInput
from tests.support.command import Command
from tests.support.helpers import refused

OPTIONS = ("--encoder", "L2(dim=10)", "--noise", "Gaussian(scale=1.1)", "--rate", "256/60000", "--steps", "200")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """300 rows of about 60 people."""
    rng, path = random.Random(0), tmp_path / "visits.csv"
    rows = [f"p{rng.randrange(60)},{rng.gauss(0, 1):.3f},{rng.gauss(0, 1):.3f},{rng.randrange(2)}" for _ in range(300)]
    path.write_text("who,a,b,label\n" + "\n".join(rows) + "\n")
    return path


def test_nobody_s_rows_are_in_both_parts(visits: Path) -> None:
    data = Dataset.from_csv(visits, "label", 0.3, unit="who")
    whole = Dataset.from_csv(visits, "label", unit="who")
    assert data.train_units is not None
    assert whole.train_units is not None
    assert len(data.train_units) == len(data.train_inputs) == 300 - len(data.test_inputs)
    assert data.shape == (2,)
    assert data.sampled == len(set(data.train_units)) < whole.sampled
    held = sum(whole.train_units.count(name) for name in set(whole.train_units) - set(data.train_units))
    assert held == len(data.test_inputs) > 0


def test_columns_that_cannot_tell(visits: Path) -> None:
    for unit, says in (("wh", "has no column 'wh'"), ("label", "nothing to predict"), ("who", "line 2 is")):
        for cell in (" ", "nan", "NULL") if unit == "who" else ("p1",):
            visits.write_text(f"who,a,label\n{cell},1,0\n")
            with refused(InvalidInput, says):
                Dataset.from_csv(visits, "label", unit=unit)


def test_train_for_people(noisette: Command, visits: Path, tmp_path: Path) -> None:
    ledger, runs = tmp_path / "people.jsonl", ("--runs", tmp_path / "runs", "--evaluations", "1")
    settings = ("--epsilon", "2", "--delta", "1e-3", "--steps", "5", "--batch", "20", "--ledger", ledger, *runs)
    data = ("train", "tabular", "--data", f"csv:{visits}:label:0.3")
    trained = noisette(*data, "--unit", "who", "--per-unit", "3", *settings, "--json").json
    promise = json.loads((Path(trained["run"]) / "guarantee.json").read_text())
    assert promise["adjacency"] == "add/remove one unit with all its examples, Poisson sampling"
    assert "unit='unit'" in promise["mechanism"]
    assert (
        noisette("account", "--ledger", ledger, "--delta", "1e-3", "--json").json["adjacency"] == promise["adjacency"]
    )
    visits.write_text("\n".join(line.partition(",")[2] for line in visits.read_text().splitlines()) + "\n")
    paid = ledger.read_bytes()
    noisette(*data, *settings).assert_refused("do not add up", "keep a ledger for each")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [Path(trained["run"]).name]
    assert ledger.read_bytes() == paid
    noisette("train", "digits", "--unit", "who", *runs).assert_refused("has no columns", "leave --unit out")


def test_account_of_cut_batches(noisette: Command) -> None:
    free = noisette("account", *OPTIONS, "--json").json
    cut = noisette("account", *OPTIONS, "--max-batch", "350", "--examples", "60000", "--json").json
    assert 1 < cut["epsilon"] / free["epsilon"] < 1.1
    assert "max_batch=350, population=60000" in cut["mechanism"]
    noisette("account", *OPTIONS, "--max-batch", "350").assert_refused("how many examples there are", "--examples")
    often = (*OPTIONS, "--max-batch", "260", "--examples", "60000")
    assert 10 < noisette("account", *often, "--json").json["epsilon"] / free["epsilon"] < 11
    noisette("account", *often, "--accountant", "rdp").assert_refused("no finite", "raise max_batch")
