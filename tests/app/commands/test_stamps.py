"""Stamps: wherever a command shows an epsilon, it shows what qualifies it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noisette import Ledger, Mechanism
from noisette.app.runs import OpenRun
from noisette.encoders import L2
from noisette.mechanism import FLAGS
from noisette.noise import Gaussian, Laplace
from tests.support.command import Command

SHORT = ("train", "--steps", "4", "--evaluations", "2", "--batch", "256")
ESTIMATE = (*SHORT, "--encoder", "Ranked()", "--noise", "Laplace(scale=10.0)")
BOUND = (*SHORT, "--noise", "Gaussian(scale=10.0)")
ONE = ("--encoder", "Ranked(dim=3)", "--noise", "Laplace(scale=3.0)", "--rate", "1")
SURE = ("--encoder", "L2(dim=3)", "--noise", "Gaussian(scale=3.0)", "--rate", "1")


@pytest.fixture(autouse=True)
def uncertified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laplace noise stands in for laws that are checked on a grid only, which take seconds to account for."""
    monkeypatch.setattr(Laplace, "certified", False)


QUALIFIED = tuple(name for name in FLAGS if name != "inexact")  # what a run of this model can be made to be


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(entry)


def check(value: Any, *flags: str) -> None:
    """Every object that has an epsilon has these flags; there is one such object at least."""
    found = [one for one in objects(value) if any("epsilon" in key or key == "claimed" for key in one)]
    assert found
    for one in found:
        assert one["flags"] == [name for name in FLAGS if name in flags]


def files(folder: Path) -> list[Any]:
    """The files of a run that tell an epsilon."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads((folder / "guarantee.json").read_text()), *map(json.loads, lines)]


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ((*BOUND,), ()),
        ((*BOUND, "--seed", "7", "--unsafe-show-private-metrics"), ("reproducible", "unsafe")),
        ((*ESTIMATE, "--seed", "7"), ("estimate", "reproducible")),
    ],
)
def test_a_run_its_files_and_its_ledger(
    noisette: Command, tmp_path: Path, arguments: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    check(noisette(*arguments, "--ledger", "all.jsonl", "--json").json, *flags)
    folder = tmp_path / "runs" / "digits-0001"
    check(files(folder), *flags)
    assert files(folder)[0]["ledger_flags"] == list(flags)
    check(noisette("show", folder, "--json").json, *flags)
    check(noisette("account", "--ledger", "all.jsonl", "--json").json, *flags)
    shown = noisette(*arguments, "--ledger", "all.jsonl")
    for text in (shown.out, noisette("account", "--ledger", "all.jsonl").out):
        lines = [line for line in text.splitlines() if "epsilon = " in line]
        assert lines
        assert all(FLAGS[name] in line for line in lines for name in flags)
    progress = re.findall(r"epsilon( \([a-z, ]+\))? \d", " ".join(shown.err.split()))
    assert progress
    assert set(progress) == {f" ({', '.join(flags)})" if flags else ""}
    told = noisette("show", folder).out.splitlines()
    assert f"flags {', '.join(flags) or 'none'}" in told


def test_another_run_after_a_seeded_one(noisette: Command, tmp_path: Path) -> None:
    """The run is clean, the ledger of all runs is not."""
    noisette(*BOUND, "--ledger", "all.jsonl", "--seed", "7")
    value = noisette(*BOUND, "--ledger", "all.jsonl", "--json").json
    check(value)
    promise = files(tmp_path / value["run"])[0]
    assert (promise["flags"], promise["ledger_flags"]) == ([], ["reproducible"])
    check(noisette("account", "--ledger", "all.jsonl", "--json").json, "reproducible")


def test_a_resumed_run_keeps_them(noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = OpenRun.points

    def interrupted(self: OpenRun) -> Iterator[Any]:
        for point in points(self):
            yield point
            if self.private.num_updates == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OpenRun, "points", interrupted)
        assert noisette(*ESTIMATE, "--seed", "7", "--unsafe-show-private-metrics").code == 1
    check(noisette("resume", "runs/digits-0001", "--json").json, *QUALIFIED)
    check(files(tmp_path / "runs" / "digits-0001"), *QUALIFIED)


def test_accounting(noisette: Command) -> None:
    check(noisette("account", *ONE, "--steps", "5", "--json").json, "estimate")
    check(noisette("account", *SURE, "--steps", "5", "--json").json)
    assert "(estimate)" in noisette("account", *ONE, "--steps", "5").out
    check(noisette("calibrate", *ONE, "--epsilon", "1", "--json").json, "estimate")
    check(noisette("calibrate", *SURE, "--epsilon", "1", "--json").json)
    assert (
        noisette("account", *ONE[:3], "ScipyNoise('t', 5, scale=9)", *ONE[4:], "--steps", "1").out.count("estimate")
        == 2
    )
    laws = ("--noises", "Gaussian()", "--noises", "Laplace()")
    both = noisette("compare", "--epsilon", "1", "--dim", "3", *laws, "--json").json
    assert both["flags"] == ["estimate"]
    assert {row["law"]: row["flags"] for row in both["rows"]} == {"Gaussian": [], "Laplace": ["estimate"]}
    assert "Laplace (estimate)" in noisette("compare", "--epsilon", "1", "--dim", "3", *laws).out


def test_an_audit_of_one_run(noisette: Command) -> None:
    check(noisette("audit", "--one-run", "digits", "--seed", "1", "--json").json, "reproducible")


def test_a_ledger_written_in_a_loop_of_ones_own(noisette: Command) -> None:
    mechanism = Mechanism(L2(dim=9), Gaussian(scale=2.0), rate=0.1, steps=50)
    with Ledger("mine.jsonl", data="mine") as ledger:
        ledger.spend(mechanism, 5, flags=["unsafe"])
    check(noisette("account", "--ledger", "mine.jsonl", "--json").json, "unsafe")
