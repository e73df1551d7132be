"""`noisette tune` from the command line: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisette.app.tuning.plan import Plan
from tests.app.tuning.test_search import check_nothing_private_is_public
from tests.support.command import Command
from tests.support.small_searches import TINY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY.to_toml())
    return tmp_path


BASE = (
    "tune",
    "tiny.toml",
    "--epsilon",
    3,
    "--trials",
    4,
    "--grid",
    "lr=0.5,1,2",
    "--trial-distribution",
    "geometric",
    "--seed",
    8,
)


def test_it_prints_what_may_be_shown(noisette: Command, folder: Path) -> None:
    done = noisette(*BASE, "--json")
    found = done.json
    assert {"winner", "epsilon", "single_run_epsilon", "trials", "law"} <= found.keys()
    assert (found["winner"], found["trials"], found["law"]) == ("runs/tiny-0001", 4, "geometric")
    assert found["single_run_epsilon"] < found["epsilon"] <= 3
    search = Path(found["search"])
    check_nothing_private_is_public(search, done.out + done.err)
    shown = noisette("show", found["winner"], "--json").json
    assert (shown["epsilon"], shown["search"]) == (found["epsilon"], repr(Plan.read(search).search))
    ledger = noisette("account", "--ledger", Path(found["winner"]) / "ledger.jsonl", "--json").json
    assert ledger["epsilon"] == found["epsilon"]
    again = noisette("resume", search)
    assert f"guarantee: epsilon = {found['epsilon']:.4g}" in again.out
    assert "the price of the whole search, 4 runs on average (geometric); one run alone:" in again.out
    noisette("show", search / "private" / "trial-000000").assert_refused("is one of a search, and private")
    for command in ("report", "show"):
        noisette(command, search).assert_refused("is the folder of a search", f"noisette resume {search}")
    noisette("report", search / "private").assert_refused("is the private part of a search")
    noisette("resume", found["winner"]).assert_refused("was chosen by a search")
    Path(found["winner"]).rename("elsewhere")
    noisette("resume", search).assert_refused("is complete, and runs/tiny-0001, which it has chosen, is gone")
    assert noisette("report", "runs", "--json").json["unfinished"] == [search.name], "a payment is lost"
    assert "a search that is paid for in full" in Path("runs/index.html").read_text()
    for score in search.glob("private/*/score.json"):
        score.write_text('{"score": null}')
    (search / "result.json").unlink()
    assert "with a score that is not a number" in noisette("resume", search).out
    assert noisette("resume", search, "--json").json["score"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--trials", 0), "trials is 0"),
        (("--trials", 10**6), "trials is 1000000"),
        (("--grid", "size=3"), "'size' is not a setting"),
        (("--grid", "momentum="), "no value of momentum"),
        (("--grid", "momentum"), "is not NAME=VALUES"),
        (("--grid", "lr=3"), "tried twice"),
        (("--grid", "batch=many"), "not a number"),
        (("--trial-distribution", "fixed"), "law is 'fixed'"),
        (("--score", "test"), "scores come from"),
        (("--score", "public"), "scores come from"),
        (("--public", "mnist"), "scores come from"),
        (("--jobs", 0), "jobs is 0"),
        (("--ray", "local"), "no address of a Ray cluster"),
        (("--ray", "127.0.0.1:1"), "there is no Ray cluster"),
        (("--ray", "127.0.0.1:99999"), "there is no Ray cluster"),
    ],
)
def test_refused(options: tuple[object, ...], says: str, noisette: Command, folder: Path) -> None:
    noisette(*BASE, *options).assert_refused(says)
    assert not (folder / "runs").exists()


def test_account_and_calibrate_know_the_price(noisette: Command) -> None:
    given = ("--encoder", "L2(dim=9)", "--rate", "4096/60000", "--steps", 100, "--json")
    found = noisette(
        "account", *given, "--noise", "Gaussian(scale=2.7915)", "--trials", 20, "--trial-distribution", "poisson"
    ).json
    assert (found["trials"], found["law"]) == (20, "poisson")
    assert found["epsilon"] > 3 > 1.01 > found["single_run_epsilon"] > 0.99
    scaled = noisette("calibrate", *given, "--noise", "Gaussian()", "--epsilon", 1.5, "--trials", 10).json
    assert scaled["epsilon"] <= 1.5
    assert 2.7 < scaled["scale"] < 2.85
    assert scaled["single_run_epsilon"] < 1.02
    noisette("account", *given, "--ledger", "x", "--trials", 3).assert_refused("a ledger says itself")
    assert json.dumps(found)
