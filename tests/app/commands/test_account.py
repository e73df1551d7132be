"""`noisette account`, `calibrate`, `compare` and what all commands share."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from noisette import Mechanism, __version__
from noisette.accounting import Ledger, calibrate, guarantee
from noisette.encoders import L2
from noisette.noise import Gaussian
from tests.support.command import Command

TOUR = Path(__file__).parents[3] / "docs" / "tour.md"
PNG = b"\x89PNG\r\n\x1a\n"
KEYS = {"epsilon", "delta", "accountant", "kind", "adjacency", "mechanism", "hash"}
SMALL = ("--encoder", "L2(dim=9)", "--noise", "Gaussian(scale=1.1)", "--rate", "256/60000", "--steps", "100")
MECHANISM = Mechanism(L2(dim=9), Gaussian(scale=1.1), rate=256 / 60000, steps=100)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
def test_account(noisette: Command, accountant: str) -> None:
    value = noisette("account", *SMALL, "--accountant", accountant, "--json").json
    assert set(value) >= KEYS
    assert value["mechanism"] == repr(MECHANISM)
    assert value["hash"] == MECHANISM.hash
    assert value["accountant"] == accountant
    assert value["epsilon"] == guarantee(MECHANISM, 1e-5, accountant).epsilon


def test_account_for_people(noisette: Command) -> None:
    done = noisette("account", *SMALL)
    assert done.code == 0
    assert str(guarantee(MECHANISM, 1e-5)) in done.out
    assert repr(MECHANISM) in done.out
    assert MECHANISM.hash in done.out


def test_the_tour_shows_what_is_printed(noisette: Command) -> None:
    """To the digit: a page that shows an older output tells an older epsilon."""
    block = re.search(r"\$ noisette (account .*)\n((?:.+\n)+?)```", TOUR.read_text())
    assert block is not None
    given = shlex.split(block[1].removesuffix(" --plot tradeoff.png"))
    assert noisette(*given).out == block[2]


def test_account_draws_the_trade_off(noisette: Command, tmp_path: Path) -> None:
    assert noisette("account", *SMALL, "--plot", "out.png", "--json").json
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)


def test_account_of_a_ledger(noisette: Command, tmp_path: Path) -> None:
    other = MECHANISM.replace(rate=0.1)
    with Ledger(tmp_path / "ledger.jsonl", data="demo") as ledger:
        ledger.spend(MECHANISM, 7)
    one = noisette("account", "--ledger", "ledger.jsonl", "--json").json
    assert one["epsilon"] == guarantee(MECHANISM.replace(steps=7), 1e-5).epsilon
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        ledger.spend(other, 3)
    two = noisette("account", "--ledger", "ledger.jsonl", "--json").json
    assert two["epsilon"] == guarantee((MECHANISM.replace(steps=7), other.replace(steps=3)), 1e-5).epsilon
    assert len(two["mechanism"]) == 2
    noisette("account", "--ledger", "none.jsonl").assert_refused("missing", "restore")


def test_calibrate(noisette: Command) -> None:
    options = ("--encoder", "L2(dim=9)", "--noise", "Gaussian()", "--rate", "1/100", "--steps", "50", "--epsilon", "2")
    value = noisette("calibrate", *options, "--json").json
    assert set(value) >= {*KEYS, "scale"}
    assert 1.998 <= value["epsilon"] <= 2
    expected = calibrate(Mechanism(L2(dim=9), Gaussian(), rate=0.01, steps=50), 2.0, 1e-5)
    assert value["mechanism"] == repr(expected)
    assert value["scale"] == expected.noise.scale


def test_calibrate_the_steps(noisette: Command) -> None:
    value = noisette(
        "calibrate", *SMALL[:-2], "--epsilon", "2", "--field", "steps", "--accountant", "rdp", "--json"
    ).json
    assert 1.9 <= value["epsilon"] <= 2
    assert "steps=" in value["mechanism"]


def test_compare(noisette: Command, tmp_path: Path) -> None:
    laws = ("--noises", "Gaussian()", "--noises", "Laplace()", "--noises", "Cauchy()")
    options = ("--epsilon", "1", "--dim", "1", *laws)
    value = noisette("compare", *options, "--plot", "bars.png", "--json").json
    assert set(value) >= {"rows", "winner"}
    assert set(value["rows"][0]) >= {"noise", "scale", "std", "l1", "l2", "effective_sigma"}
    assert value["winner"] == value["rows"][0]["noise"]
    assert value["winner"].startswith("Laplace")
    assert value["rows"][-1]["l2"] is None
    assert (tmp_path / "bars.png").read_bytes().startswith(PNG)
    shown = noisette("compare", *options)
    assert shown.code == 0
    assert "Laplace beats Gaussian" in shown.out
    assert "median absolute error" in shown.out


def test_an_own_noise_from_a_file(noisette: Command, tmp_path: Path) -> None:
    source = """
from dataclasses import dataclass
from noisette.noise import Gaussian

@dataclass(frozen=True)
class Homemade(Gaussian):
    pass
"""
    (tmp_path / "mine.py").write_text(source)
    options = ("--encoder", "L2(dim=9)", "--noise", "Homemade(scale=1.1)", "--rate", "256/60000", "--steps", "100")
    # in a process of its own: here the class would stay known to every test that follows
    command = [sys.executable, "-m", "noisette", "--load", "mine.py", "account", *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    value = json.loads(done.stdout)
    assert "Homemade" in value["mechanism"]
    assert value["epsilon"] == pytest.approx(guarantee(MECHANISM, 1e-5).epsilon, rel=1e-9)
    noisette("--load", "none.py", "account", *options).assert_refused("there is no Python file none.py")


@pytest.mark.parametrize(
    ("changes", "sentence", "hint"),
    [
        ({"--noise": "Laplace(scale=1.0)"}, "the worst case of Laplace noise over an L2 ball is not known", "Ranked"),
        ({"--noise": "Gaussain(scale=1.0)"}, "'Gaussain' is not known", "Gaussian"),
        ({"--noise": "Gaussian()"}, "scale", ""),
        ({"--encoder": "L2(dim=0)"}, "dim is 0", ""),
        ({"--encoder": "L2("}, "is not a valid expression", ""),
        ({"--rate": "256/0"}, "is not a number", "256/60000"),
        ({"--rate": "1.5"}, "outside (0, 1]", "expected batch"),
        ({"--delta": "0"}, "Gaussian noise has no finite epsilon at delta = 0", "above 0"),
        ({"--delta": "-1e-5"}, "delta is -1e-05, not above 0", "choose delta"),
        ({"--delta": "0.01", "--examples": "100"}, "at least 1/100", "choose delta below"),
        ({"--accountant": "magic"}, "accountant is 'magic'", "pld"),
        ({"--encoder": ""}, "no whole mechanism was given", "--ledger"),
    ],
)
def test_errors_name_the_fix(noisette: Command, changes: dict[str, str], sentence: str, hint: str) -> None:
    options = dict(zip(SMALL[::2], SMALL[1::2], strict=True)) | changes
    arguments = [part for pair in options.items() for part in pair]
    noisette("account", *arguments).assert_refused(sentence, hint)
    noisette("account", *arguments, "--json").assert_refused(sentence, hint)


@pytest.mark.parametrize(
    "arguments", [["account", "--steps", "many"], ["account", "--no-such-option"], ["no-such-command"], ["calibrate"]]
)
def test_usage_errors_have_status_2(noisette: Command, arguments: list[str]) -> None:
    done = noisette(*arguments)
    assert done.code == 2
    assert done.out == ""


def test_version_and_help(noisette: Command) -> None:
    assert noisette("--version").out == f"noisette {__version__}\n"
    shown = noisette("--help")
    assert shown.code == 0
    for command in ("account", "calibrate", "compare", "train", "resume", "show", "predict", "data"):
        assert command in shown.out


def test_a_data_set_that_nobody_knows(noisette: Command) -> None:
    noisette("data", "fetch", "imagenet").assert_refused("imagenet")


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "noisette", "account", *SMALL[:-1], "-1", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "hint:" in done.stderr


@pytest.mark.parametrize("steps", [(), ("--steps", "0")])
def test_without_steps_there_is_no_epsilon(noisette: Command, steps: tuple[str, ...]) -> None:
    noisette("account", *SMALL[:-2], *steps).assert_refused("no whole mechanism", "--steps")
