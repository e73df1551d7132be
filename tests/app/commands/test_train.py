"""`noisette train`, `resume`, `show`, `predict`: one command to a private model, and nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import noisette as library
from noisette import Mechanism
from noisette.accounting import Ledger, guarantee
from noisette.app.runs import OpenRun, load
from noisette.training import private_run
from tests.support.command import Command

PNG = b"\x89PNG\r\n\x1a\n"
FILES = {
    "model.pt", "model.safetensors", "checkpoint.pt", "ledger.jsonl", "metrics.jsonl", "guarantee.json", "recipe.toml",
    "accuracy.png", "mechanism.toml", "settings.json",
}  # fmt: skip
SHORT = ("train", "--noise", "Gaussian(scale=10.0)", "--steps", "6", "--evaluations", "3", "--batch", "256")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_short_run_learns_and_promises(noisette: Command, tmp_path: Path) -> None:
    """Measured: 93 to 94% with these settings, over seeds; 90% is a floor."""
    value = noisette("train", "--steps", "60", "--seed", "0", "--evaluations", "2", "--json").json
    assert set(value) >= {"run", "epsilon", "delta", "accuracy", "steps", "seconds"}
    assert value["accuracy"] >= 0.90
    assert (value["steps"], value["delta"]) == (60, 1e-5)
    assert 2.99 <= value["epsilon"] <= 3.0
    folder = tmp_path / value["run"]
    assert folder == tmp_path / "runs" / "digits-0001"
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "accuracy.png").read_bytes().startswith(PNG)
    promise = json.loads((folder / "guarantee.json").read_text())
    assert promise["epsilon"] == value["epsilon"]
    assert promise["flags"] == value["flags"] == ["reproducible"]
    with Ledger(folder / "ledger.jsonl") as ledger:
        assert guarantee(ledger.mechanisms(), 1e-5).epsilon == value["epsilon"]
    mechanism = Mechanism.from_toml((folder / "mechanism.toml").read_text())
    assert value["hash"] == mechanism.hash

    shown = noisette("show", folder, "--json").json
    assert (shown["epsilon"], shown["accuracy"], shown["updates"]) == (value["epsilon"], value["accuracy"], 60)
    assert "accuracy" in noisette("show", folder).out

    found = noisette("predict", folder, "digits", "--json").json
    assert found["accuracy"] == value["accuracy"]
    data = library.app.datasets.load("digits")
    np.save(tmp_path / "inputs.npy", data.test_inputs.numpy())
    assert noisette("predict", folder, "inputs.npy", "--json").json["predictions"] == found["predictions"]
    with torch.no_grad():
        again = load(folder)(data.test_inputs).argmax(dim=1)
    assert again.tolist() == found["predictions"]
    noisette("predict", folder, "none.npy").assert_refused("there is no file none.npy", "numpy.save")
    (tmp_path / "text.npy").write_text("no array")
    noisette("predict", folder, "text.npy").assert_refused("is not an array")
    np.save(tmp_path / "wrong.npy", np.zeros((2, 1, 9, 9)))
    noisette("predict", folder, "wrong.npy").assert_refused("do not fit", "(N, ...)")
    noisette("resume", folder).assert_refused("all steps of this run are spent already", "noisette show")


@pytest.mark.slow
def test_the_demo_keeps_its_word(noisette: Command) -> None:
    """epsilon 3, delta 1e-5: at least 92% on average over three seeds."""
    values = [noisette("train", "--seed", seed, "--json").json for seed in range(3)]
    assert all(value["epsilon"] <= 3.0 and value["delta"] == 1e-5 for value in values)
    assert sum(value["accuracy"] for value in values) / 3 >= 0.92


def test_for_people(noisette: Command, tmp_path: Path) -> None:
    done = noisette(*SHORT, "--seed", "1", "--unsafe-show-private-metrics")
    assert done.code == 0
    for text in ("test accuracy", "guarantee: epsilon = ", "reproducible: not for release", "private metrics", "plot:"):
        assert text in done.out
    folder = tmp_path / "runs" / "digits-0001"
    assert json.loads((folder / "guarantee.json").read_text())["flags"] == ["reproducible", "unsafe"]
    lines = _lines(folder / "metrics.jsonl")
    assert [line["updates"] for line in lines] == [2, 4, 6]
    assert all("train_loss" in line for line in lines)


def test_without_the_unsafe_option_no_training_loss_is_told(noisette: Command, tmp_path: Path) -> None:
    done = noisette(*SHORT)
    assert done.code == 0
    assert "loss" not in done.out + done.err
    folder = tmp_path / "runs" / "digits-0001"
    for line in _lines(folder / "metrics.jsonl"):
        assert set(line) == {"updates", "paid", "total", "epsilon", "flags", "accuracy"}
    promise = json.loads((folder / "guarantee.json").read_text())
    assert promise["flags"] == []


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_a_run_that_can_be_resumed(
    noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, calls = private_run.release, []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return release(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(private_run, "release", interrupted)
        stopped = noisette(*SHORT, "--seed", "3", "--json")
    folder = tmp_path / "runs" / "digits-0001"
    assert (stopped.code, stopped.out) == (1, "")
    assert "go on with: noisette resume runs/digits-0001" in stopped.err
    with Ledger(folder / "ledger.jsonl") as ledger:
        assert sum(one.steps for one in ledger.mechanisms()) == 4

    done = noisette("resume", "runs/digits-0001", "--json")
    assert "1 steps were paid after the last checkpoint" in done.err
    assert done.json["steps"] == 5, "one step was paid and lost"
    with Ledger(folder / "ledger.jsonl") as ledger:
        assert sum(one.steps for one in ledger.mechanisms()) == 6
    promise = json.loads((folder / "guarantee.json").read_text())
    assert promise["paid"] == 6
    assert promise["flags"] == done.json["flags"] == ["reproducible"], "its first steps had a seed"


def test_ctrl_c_between_two_steps(noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = OpenRun.points

    def interrupted(self: OpenRun) -> Iterator[Any]:
        for point in points(self):
            yield point
            if self.private.num_updates == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OpenRun, "points", interrupted)
        assert noisette(*SHORT).code == 1
    assert noisette("resume", "runs/digits-0001", "--json").json["steps"] == 6


def test_show_tells_what_a_killed_run_has_paid(noisette: Command, tmp_path: Path) -> None:
    """The last result of a run is older than its last payment."""
    folder = tmp_path / noisette(*SHORT, "--seed", "3", "--ledger", "all.jsonl", "--json").json["run"]
    whole = noisette("show", folder, "--json")
    assert "not finished" not in whole.err
    mechanism = Mechanism.from_toml((folder / "mechanism.toml").read_text())
    with Ledger(folder / "ledger.jsonl") as ledger, Ledger(tmp_path / "all.jsonl") as shared:
        ledger.spend(mechanism, 2)
        shared.spend(mechanism, 2)
        expected = ledger.guarantee(1e-5)
        shown = noisette("show", folder, "--json")  # also while another process has the ledger
    assert "is not finished, and its ledger has paid for 8 steps" in shown.err
    assert (shown.json["epsilon"], shown.json["paid"]) == (expected.epsilon, 8)
    assert shown.json["ledger_epsilon"] == expected.epsilon
    assert shown.json["epsilon"] > whole.json["epsilon"]
    assert shown.json["flags"] == whole.json["flags"] == ["reproducible"]
    assert shown.json.keys() == whole.json.keys()
    assert f"epsilon {expected.epsilon}" in noisette("show", folder).out


def test_an_edited_ledger_is_refused(noisette: Command, tmp_path: Path) -> None:
    assert noisette(*SHORT).code == 0
    path = tmp_path / "runs" / "digits-0001" / "ledger.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace('"steps": 1', '"steps": 2', 1))
    noisette("resume", "runs/digits-0001").assert_refused("was edited or is damaged", "backup")
    path.unlink()
    noisette("resume", "runs/digits-0001").assert_refused("is missing", "restore")
    assert not path.exists()
    path.write_text(whole)
    (path.parent / "checkpoint.pt").write_bytes(b"nonsense")
    noisette("resume", "runs/digits-0001").assert_refused("checkpoint.pt is damaged", "backup")
    (path.parent / "model.pt").write_bytes(b"nonsense")
    noisette("predict", "runs/digits-0001", "digits").assert_refused("model.pt is damaged")


def test_the_ledger_of_a_data_set_adds_up_all_its_runs(noisette: Command, tmp_path: Path) -> None:
    for _ in range(2):
        assert noisette(*SHORT, "--ledger", "all.jsonl").code == 0
    promise = json.loads((tmp_path / "runs" / "digits-0002" / "guarantee.json").read_text())
    assert promise["ledger_epsilon"] > promise["epsilon"]
    spent = noisette("account", "--ledger", "all.jsonl", "--json").json
    assert spent["epsilon"] == promise["ledger_epsilon"]
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(50)))
    other = noisette(*SHORT, "--ledger", "all.jsonl", "--data", "csv:t.csv:b", "--model", "linear")
    other.assert_refused("belongs to the people 'digits'", "--people")
    assert not (tmp_path / "runs" / "digits-0003").exists()


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence", "hint"),
    [
        (["--noise", "Laplace()"], "Laplace noise over an L2 ball", "Ranked"),
        (["--noise", "Gaussian(scale=1.0)", "--steps", "5", "--epsilon", "3"], "3 of noise scale", "give two"),
        (["--steps", "0"], "steps is 0", "steps"),
        (["--epsilon", "-1"], "epsilon", ""),
        (["--delta", "0.01"], "at least 1/1437", "choose delta below"),
        (["--lr", "0"], "lr is 0", ""),
        (["--momentum", "1"], "outside [0, 1)", ""),
        (["--schedule", "cosine"], "schedule is 'cosine'", "linear"),
        (["--denoiser", "Kolmogorov()"], "'Kolmogorov' is not known", ""),
        (["--model", "mnist_cnn"], "mnist_cnn wants 1x28x28, the data has 1x8x8", "digits_cnn"),
        (["--model", "resnet"], "there is no model 'resnet'", ""),
        (["--model-option", "width=3"], "has no option 'width'", "hidden"),
        (["--model-option", "width"], "is not NAME=VALUE", ""),
        (["--data", "imagenet"], "there is no data set 'imagenet'", ""),
        (["--data", "mnist"], "mnist", "fetch"),
        (["--data", "csv:none.csv:label"], "none.csv", ""),
        (["--encoder", "L2(dim=3)"], "the encoder has dimension 3, the model has 4810", "dim=4810"),
        (["--device", "abacus"], "abacus", "cpu"),
        (["no-such-recipe"], "there is no recipe 'no-such-recipe'", "digits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_name_the_fix_and_leave_nothing(
    noisette: Command, tmp_path: Path, options: list[str], sentence: str, hint: str
) -> None:
    noisette("train", *options).assert_refused(sentence, hint)
    assert not list(tmp_path.glob("runs/*"))


def test_a_full_recipe_can_be_overridden(noisette: Command, tmp_path: Path) -> None:
    options = {
        "--encoder": "Ranked()", "--noise": "Laplace(scale=3.0)", "--denoiser": "KS()", "--steps": "2", "--batch": "64",
        "--lr": "0.5", "--momentum": "0", "--schedule": "constant", "--averaging": "0.9", "--model": "linear",
        "--chunk": "16", "--evaluations": "1", "--delta": "1e-6", "--runs": "elsewhere",
    }  # fmt: skip
    value = noisette("train", *(part for pair in options.items() for part in pair), "--json").json
    assert value["delta"] == 1e-6
    mechanism = Mechanism.from_toml((tmp_path / "elsewhere/digits-0001/mechanism.toml").read_text())
    assert repr(mechanism.noise) == "Laplace(scale=3.0)"
    assert (mechanism.rate, mechanism.steps) == (64 / 1437, 2)


def test_own_data_in_a_table(noisette: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{y:.3f},{'yes' if x > 0 else 'no'}" for x, y in rng.standard_normal((300, 2))]
    (tmp_path / "t.csv").write_text("x,y,answer\n" + "\n".join(rows) + "\n")
    options = ("--data", "csv:t.csv:answer:0.2", "--model", "linear", "--batch", "60")
    assert noisette(*SHORT[:-2], *options, "--json").json["accuracy"] is not None


def test_a_table_without_bounds_is_said(noisette: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,answer\n" + "".join(f"{i / 100},{i % 2}\n" for i in range(100)))
    options = (*SHORT[:-2], "--data", "csv:t.csv:answer", "--model", "linear", "--batch", "20", "--json")
    said = f"the table has no bounds, as there is no {tmp_path / 't.bounds.toml'}: its numbers are taken as they are"
    done = noisette(*options)
    assert done.err.count(said) == 1
    assert done.json["accuracy"] is None, "and nothing else is on stdout"
    (tmp_path / "t.bounds.toml").write_text("x = [0, 1]\n")
    assert "bounds" not in noisette(*options).err
    assert "bounds" not in noisette(*SHORT).err, "these are pictures"


def test_a_table_without_test_rows_has_no_accuracy(noisette: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,answer\n" + "".join(f"{i / 100},{i % 2}\n" for i in range(100)))
    options = ("--data", "csv:t.csv:answer", "--model", "linear", "--batch", "20")
    assert noisette(*SHORT[:-2], *options, "--json").json["accuracy"] is None
    assert noisette(*SHORT[:-2], *options).code == 0


@pytest.mark.parametrize("command", [["show"], ["resume"]])
def test_a_folder_that_is_no_run(noisette: Command, command: list[str]) -> None:
    noisette(*command, "nowhere").assert_refused("there is no folder nowhere.", "runs/digits-0001")


def test_a_batch_of_more_than_all_is_said(noisette: Command) -> None:
    short = ("train", "--noise", "Gaussian(scale=90.0)", "--steps", "1", "--json")
    said = "a batch of 1438 is more than the 1437 training examples: every step takes all of them, which is a rate of 1"
    done = noisette(*short, "--batch", "1438")
    assert said in done.err
    assert "rate=1.0" in noisette("show", done.json["run"], "--json").json["mechanism"]
    assert "training examples" not in noisette(*short, "--batch", "1437").err


def test_a_run_that_was_killed_while_it_was_set_up_is_resumed(noisette: Command, tmp_path: Path) -> None:
    """As it stands when it was killed before anything was planned."""
    done = noisette("train", "--noise", "Gaussian(scale=90.0)", "--steps", "2", "--json")
    run = tmp_path / done.json["run"]
    settings = json.loads((run / "settings.json").read_text()) | {"shape": None, "classes": None}
    for path in run.iterdir():
        if path.name != "recipe.toml":
            path.unlink()
    (run / "settings.json").write_text(json.dumps(settings))
    noisette("show", run).assert_refused("is not set up yet, so nothing was spent", "or delete the folder")
    assert noisette("resume", run, "--json").json["steps"] == 2
    assert noisette("show", run, "--json").json["paid"] == 2


def test_commands_in_hints_can_be_pasted(noisette: Command, tmp_path: Path) -> None:
    runs = tmp_path / "my runs"
    assert noisette("train", "--noise", "Gaussian(scale=90.0)", "--steps", "1", "--runs", runs).code == 0
    run = runs / "digits-0001"
    noisette("resume", run).assert_refused("are spent already", f"noisette show '{run}'")
    (run / "guarantee.json").unlink()
    noisette("show", run).assert_refused("has no result yet", f"noisette resume '{run}'")
    noisette("report", run).assert_refused("is not finished", f"noisette resume '{run}', then")
    settings = json.loads((run / "settings.json").read_text()) | {"shape": None, "classes": None}
    (run / "settings.json").write_text(json.dumps(settings))
    noisette("show", run).assert_refused("is not set up yet", f"noisette resume '{run}', or")


def test_stamps_that_are_no_names_are_no_guarantee(noisette: Command, tmp_path: Path) -> None:
    """It ended in a traceback once."""
    for flags in (3, "text", [3], None):
        (tmp_path / "guarantee.json").write_text(json.dumps({"epsilon": 1, "delta": 0.1, "kind": "", "flags": flags}))
        noisette("show", tmp_path).assert_refused("is not a guarantee", "backup")
