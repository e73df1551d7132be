"""Ledgers on the command line: read without a trace, told where one was cut short, and named after people."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from noisette import Ledger, read_ledger
from tests.support.command import Command
from tests.unit.accounting.test_ledger import ONE

SHORT = ("train", "--noise", "Gaussian(scale=10.0)", "--steps", "4", "--evaluations", "2", "--batch", "10")


def test_accounting_for_a_file_that_is_no_ledger_leaves_it_alone(noisette: Command, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for content in ('{"accuracy": 0.93}', "", "x\n"):
        path.write_text(content)
        noisette("account", "--ledger", path).assert_refused("is not a ledger" if content else "is empty", "backup")
        noisette(*SHORT, "--ledger", path).assert_refused("is not a ledger" if content else "is empty", "backup")
        assert path.read_text() == content
    assert not (tmp_path / "runs").exists()


def test_one_byte_less_is_told_and_costs_no_less(noisette: Command, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, data="demo") as ledger:
        ledger.spend(ONE, 1000)
        ledger.spend(ONE, 9000)
    whole = path.read_bytes()
    honest = noisette("account", "--ledger", path, "--json")
    assert "cut short" not in honest.err
    for cut in (1, 2, 50):
        path.write_bytes(whole[:-cut])
        done = noisette("account", "--ledger", path, "--json")
        assert done.json["epsilon"] == honest.json["epsilon"]
        assert "was cut short: it counts as 9000 steps" in done.err
        assert path.read_bytes() == whole[:-cut]


def test_a_run_says_so_too_and_goes_on(noisette: Command, tmp_path: Path) -> None:
    assert noisette(*SHORT, "--ledger", "all.jsonl").code == 0
    path = tmp_path / "all.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    done = noisette(*SHORT, "--ledger", "all.jsonl")
    assert done.code == 0
    assert "a line of the ledger all.jsonl was cut short: it counts as 1 steps" in done.err
    assert sum(one.steps for one in read_ledger(path).mechanisms()) == 8


@pytest.mark.parametrize("command", [("account",), SHORT])
def test_what_keeps_nothing_is_refused(noisette: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/null", "fifo", "."):
        noisette(*command, "--ledger", path).assert_refused("is not a regular file", "path of a file")
    (tmp_path / "file").write_text("")
    noisette(*command, "--ledger", "file/ledger.jsonl").assert_refused("not a directory")
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "runs") == ["fifo", "file"]


def test_columns_and_spellings_of_one_file_are_the_same_people(noisette: Command, tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 2},{i % 3}\n" for i in range(60))
    (tmp_path / "people.csv").write_text("a,b,c\n" + rows)
    (tmp_path / "link.csv").symlink_to("people.csv")
    (tmp_path / "copy.csv").write_text("a,b,c\n" + rows)
    pay = (*SHORT, "--model", "linear", "--ledger", "all.jsonl", "--json")
    for data in ("people.csv:b", "./link.csv:c:0.2"):
        assert noisette(*pay, "--data", f"csv:{data}").json["steps"] == 4
    other = noisette(*pay, "--data", "csv:copy.csv:b")
    other.assert_refused("belongs to the people", f"call them 'csv:{tmp_path / 'people.csv'}' (--people")
    assert "too little" in other.err
    noisette(*pay, "--data", "csv:copy.csv:b", "--people", f"csv:{tmp_path / 'people.csv'}").json  # noqa: B018
    assert sum(one.steps for one in read_ledger(tmp_path / "all.jsonl").mechanisms()) == 12


def test_people_have_a_name_of_the_owner_s_choice(noisette: Command, tmp_path: Path) -> None:
    assert noisette(*SHORT, "--ledger", "all.jsonl", "--people", "ward 7").code == 0
    assert read_ledger(tmp_path / "all.jsonl").population_name == "ward 7"
    assert json.loads((tmp_path / "runs" / "digits-0001" / "settings.json").read_text())["people"] == "ward 7"
    noisette(*SHORT, "--ledger", "all.jsonl").assert_refused("belongs to the people 'ward 7', not 'digits'")
