"""Every option of every command, with any text or number in it: a documented exit status, and nothing left behind.

Options are found by walking the commands, so that a new one is tried unasked.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from noisette.app.commands import app, main
from noisette.app.commands.output import log
from noisette.app.datasets.sources import sources
from noisette.app.recipes import names
from tests.support.command import Command, Outcome
from tests.support.damaged_runs import assert_documented, begun, copied, snapshot
from tests.support.tiny_run import recipe

MECHANISM = ("--encoder", "L2(dim=9)", "--noise", "Gaussian(scale=2.0)", "--rate", "0.1", "--steps", "3")
BASES: dict[str, tuple[str, ...]] = {
    "account": MECHANISM,
    "calibrate": ("--encoder", "L2(dim=9)", "--noise", "Gaussian()", "--rate", "0.1", "--epsilon", "1"),
    "compare": ("--epsilon", "1", "--dim", "5", "--noises", "Gaussian()"),
    "check": ("noisette.app.models.convolutional:mnist_cnn",),
    "train": ("recipe.toml",),
    "resume": ("copy/tiny-0001",),
    "show": ("copy/tiny-0001",),
    "predict": ("copy/tiny-0001", "x.npy"),
    "audit": ("--encoder", "L2(dim=3)", "--noise", "Gaussian(scale=2.0)", "--rate", "0.1", "--steps", "50"),
    "data fetch": ("none",),
    "report": ("copy",),
    "tune": ("recipe.toml", "--epsilon", "3", "--trials", "1", "--grid", "lr=1", "--trial-distribution", "geometric"),
}
"""What a command is given beside the option that is tried: as little work as there is."""

NUMBERS = st.one_of(
    st.integers(-(10**3), 10**3).map(str),
    st.sampled_from([10**6, 10**9, 10**18, -(10**18), 10**308, 10**400]).map(str),
    st.floats().map(repr),
    st.sampled_from(["1/3", "1/0", "nan/1", "1e999", "0x10", "1_0", "٣", "²", "1" * 5000, "-0", "5e-324", "1e-31"]),
)
ODD = [
    ".", "..", "/", "-", "--", "/dev/null", "/proc/x/y", "../../escape", "[/bold]", "%s", "recipe.toml/x", "copy",
    "x.npy", "table.csv", "recipe.toml", "csv:", "csv::", "folder:", "folder:.", "csv:table.csv:",
    "csv:table.csv:label:2", "csv:table.csv:label:nan", "csv:table.csv:a", "hidden=1,x", "hidden=10000000000",
    "seed=3", "name=x", "width=0", "activation=1", "=", "meta", "cuda", "cuda:99", "xla", "L2()", "L2(dim=1e300)",
    "Gaussian()", "Gaussian(scale=1e-320)", "Identity()", "Ranked(dim=9,profiles=L2())",
    "Ranked(dim=9,profiles=Empirical(levels=(0.0,),counts=(9,)))",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=8).filter(lambda raw: 0 not in raw).map(lambda raw: raw.decode(errors="surrogateescape")),
    st.sampled_from([*ODD, "", " ", "\x1b[31m", "x" * 300, "Gaussian(" * 99, "1" * 4000 + "*" + "1" * 4000]),
)


def _commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from _commands(below, *path, name)
    else:
        yield " ".join(path), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_every_command_is_tried() -> None:
    assert BASES.keys() == COMMANDS.keys()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was cut off, a recipe, a table and an array."""
    folder = tmp_path_factory.mktemp("source")
    begun(folder)
    plan = recipe(folder, steps=2, evaluations=1, denoiser="Identity()")
    (folder / "recipe.toml").write_text(plan.to_toml())
    return folder


def _long(command: str, option: str, value: str) -> bool:
    """Whether this is honest work that takes more than a moment, or would fetch something."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    work = {
        ("train", "--steps"): 4 < number <= 10**9,
        ("audit", "--steps"): 200 < number <= 10**7,
        ("compare", "--dim"): number > 10**4,
    }
    return work.get((command, option), False) or value in names() or value in sources()


def _call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Outcome:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["noisette", *arguments])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    assert not log._live_stack, "a progress bar is left"
    out.seek(0)
    code = ended.value.code
    return Outcome(code if isinstance(code, int) else 0, out.read(), err.getvalue())


def _try(data: st.DataObject, command: str, source: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = data.draw(st.sampled_from(COMMANDS[command].params), label="parameter")
    option, value = parameter.opts[0], data.draw(NUMBERS | TEXTS, label="value")
    assume(not _long(command, option, value))
    arguments = list(BASES[command])
    if parameter.param_type_name == "argument":
        place = [one.name for one in COMMANDS[command].params if one.param_type_name == "argument"].index(
            parameter.name
        )
        arguments[place : place + 1] = ["--", value] if place == 0 else [value]
    elif getattr(parameter, "is_flag", False):
        arguments.append(option)
    elif option in arguments:
        arguments[arguments.index(option) + 1] = value
    else:
        arguments += [option, value]
    shutil.rmtree(here)
    copied(source, here / "copy")
    for name in ("recipe.toml", "table.csv"):
        shutil.copy(source / name, here / name)
    np.save(here / "x.npy", np.zeros((3, 2)))
    monkeypatch.chdir(here)
    before = snapshot(here)
    done = _call([*command.split(), *arguments], monkeypatch)
    assert_documented(done)
    assert done.code == 0 or snapshot(here) == before


def _settings(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"audit"}))
@_settings(6)
@given(data=st.data())
def test_a_few_values(
    data: st.DataObject, command: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _try(data, command, source, tmp_path, monkeypatch)


@_settings(2)
@given(data=st.data())
def test_a_few_values_of_an_audit(
    data: st.DataObject, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit takes seconds at its smallest."""
    _try(data, "audit", source, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@_settings(100)
@given(data=st.data())
def test_many_values(
    data: st.DataObject, command: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _try(data, command, source, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        (["account", *MECHANISM, "--steps", "1" * 400], "steps is above", "steps"),
        (["account", *MECHANISM, "--rate", "5e-324"], "no data set is as large", "batch"),
        (["account", *MECHANISM, "--plot", "recipe.toml/x.png"], "cannot be written", "another place"),
        (["account", *MECHANISM, "--encoder", "Ranked(dim=5, profiles=Empirical(levels=(0.0,), counts=(5,)))"],
         "all levels of the profile are 0", "gradients"),
        (["account", *MECHANISM, "--encoder", f"L2(dim={'9' * 4000}*{'9' * 4000})"], "larger than any float", ""),
        (["train", "recipe.toml", "--lr", "1e300"], "lr is 1e+300", "below 100"),
        (["train", "recipe.toml", "--runs", "recipe.toml"], "no folder can be made in recipe.toml", "--runs"),
        (["train", "recipe.toml", "--runs", "recipe.toml/runs"], "no folder can be made", "--runs"),
        (["train", "recipe.toml", "--device", "meta"], "torch cannot compute on 'meta'", "cpu"),
        (["train", "recipe.toml", "--model-option", "seed=3"], "model_options are not a table", "model_seed"),
        (["train", "recipe.toml", "--model-option", "classes=3"], "has no option 'classes'", ""),
        (["train", "recipe.toml", "--model", "mlp", "--model-option", "hidden=90000,90000"], "8,100,", "the most"),
        (["train", "recipe.toml", "--model", "mlp", "--model-option", "hidden=3,x"], "hidden is 'x'", "integer"),
        (["train", "recipe.toml", "--data", "csv:\udc80:y"], "cannot be written", "UTF-8"),
        (["train", "escape.toml"], "'../../escape', which cannot name a folder", "letters"),
        (["train", "wrong.toml"], "in wrong.toml, noise is 3, not a text", ""),
        (["account", *MECHANISM, "--encoder", "Ranked(dim=1e300)"], "dim is above", ""),
        (["audit", *MECHANISM, "--steps", str(10**12)], "steps is above", "integer"),
        (["audit", *MECHANISM, "--steps", "50", "--encoder", f"L2(dim={10**11})"], "in hand, one by one", "at most"),
        (["--load", "bad.py", "account", *MECHANISM], "bad.py fails when it is loaded (ZeroDivisionError", "python"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60].encode("ascii", "replace") if isinstance(value, list) else "",
)  # fmt: skip
def test_what_was_found(
    noisette: Command, source: Path, tmp_path: Path, arguments: list[str], sentence: str, hint: str
) -> None:
    """Each of these ended in a traceback once, or did what nobody wants."""
    text = (source / "recipe.toml").read_text()
    (tmp_path / "recipe.toml").write_text(text)
    (tmp_path / "escape.toml").write_text(text.replace('name = "tiny"', 'name = "../../escape"'))
    (tmp_path / "wrong.toml").write_text(text.replace('noise = "Gaussian(scale=5.0)"', "noise = 3"))
    (tmp_path / "bad.py").write_text("1 / 0\n")
    before = snapshot(tmp_path)
    noisette(*arguments).assert_refused(sentence, hint)
    assert snapshot(tmp_path) == before


def test_no_examples_is_a_usage_error(noisette: Command) -> None:
    done = noisette("account", *MECHANISM, "--examples", "0")
    assert (done.code, done.out) == (2, "")
