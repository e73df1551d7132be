"""`noisette predict`: what it refuses to say anything about."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisette.app.datasets import Dataset
from tests.support.command import Command

TRAIN = ("train", "tabular", "--noise", "Gaussian(scale=8.0)", "--steps", "2", "--batch", "20", "--json")


def table(path: Path, rows: int = 120) -> None:
    path.write_text("x,kind,other\n" + "".join(f"{i / rows},{i % 2},{i % 3}\n" for i in range(rows)))


@pytest.mark.parametrize("people", [(), ("--people", "ward 7")])
def test_rows_that_were_trained_on_stay_private(noisette: Command, tmp_path: Path, people: tuple[str, ...]) -> None:
    """The test rows of a larger share are those of a smaller one, and training rows beside them."""
    table(tmp_path / "t.csv")
    table(tmp_path / "others.csv")
    run = noisette(*TRAIN, "--data", "csv:t.csv:kind:0.2", *people).json["run"]
    for data in ("csv:t.csv:kind:0.9", "csv:./t.csv:kind:0.21", "csv:t.csv:other:0.2", "csv:t.csv:kind:nan"):
        noisette("predict", run, data).assert_refused("trained on, which are private", "no larger test part")
    for data in ("csv:t.csv:kind:0.2", f"csv:{tmp_path / 't.csv'}:kind:0.10", "csv:others.csv:kind:0.9"):
        share = float(data.rpartition(":")[2])
        expected = len(Dataset.from_csv(tmp_path / "t.csv", "kind", share).test_inputs)
        assert len(noisette("predict", run, data, "--json").json["predictions"]) == expected > 0
    noisette("predict", run, "csv:t.csv:kind").assert_refused("has no test part")


def test_a_run_on_all_rows_has_none_to_be_tested_by(noisette: Command, tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    run = noisette(*TRAIN, "--data", "csv:t.csv:kind").json["run"]
    noisette("predict", run, "csv:t.csv:kind:0.2").assert_refused("trained on, which are private", "other people")
