"""`noisette audit`: its verdict is its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noisette import Mechanism, parse
from noisette.app.recipes import Recipe
from tests.support.audited_mechanisms import quieter
from tests.support.command import Command

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("audit", "--encoder", "L2(dim=20)", "--noise", "Gaussian(scale=1.0)", "--rate", "2/10", "--steps", "60")


def test_an_honest_mechanism(noisette: Command, tmp_path: Path) -> None:
    value = noisette(*SMALL, "--seed", "1", "--json", "--plot", "out.png").json
    assert set(value) >= {"verdict", "level", "points", "claimed", "mechanism", "hash"}
    assert value["verdict"] == "consistent with the claim"
    assert len(value["points"]) == 48
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)
    shown = noisette(*SMALL, "--seed", "1", "--plot", "out.png")
    assert shown.code == 0
    assert shown.out.startswith("consistent with the claim\n")
    assert "tiny noise" not in shown.out
    assert "plot: out.png" in shown.out


def test_a_broken_one_has_status_3(noisette: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch, 0.4)
    done = noisette(*SMALL, "--seed", "1", "--json")
    assert done.code == 3
    assert json.loads(done.out)["verdict"] == "REFUTED"
    shown = noisette(*SMALL[:-1], "300", "--seed", "1", "--verbose")
    assert shown.code == 3
    assert shown.out.startswith("REFUTED\n")
    assert "tiny noise" in shown.out
    assert "does not follow" in shown.out
    assert "lie under the claimed curve" in shown.out
    assert "<--" in shown.out


def test_one_run(noisette: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    value = noisette("audit", "--one-run", "digits", "--seed", "1", "--json").json
    assert value["verdict"] == "consistent with the claim"
    assert value["canaries"] == 200
    assert 0 <= value["lower"] <= value["claimed"] <= 3
    quieter(monkeypatch, 0.0)
    shown = noisette("audit", "--one-run", "digits", "--seed", "1", "--confidence", "0.9")
    assert "guesses about 200 canaries are right" in shown.out
    assert "claimed: epsilon at most 2.99" in shown.out


def test_one_run_is_of_the_features_model(noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe with 20 features has 21 * 10 parameters; on the 64 pixels, which were audited once, it has 650."""
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))
    spec = "Scattering(pictures='strokes', axes=20, count=40, scales=1, angles=4, group=1)"
    recipe = Recipe.load("digits").changed(
        noise="Gaussian(scale=5.0)", model="linear", model_options={}, features=spec, steps=3, batch=2000
    )
    (tmp_path / "small.toml").write_text(recipe.to_toml())
    done = noisette("audit", "--one-run", "small.toml", "--seed", "1", "--json")
    found = parse(done.json["mechanism"], Mechanism)
    assert (found.encoder.dim, found.rate, found.steps) == (210, 1.0, 3)
    assert done.json["hash"] == found.hash
    assert "a batch of 2000 is more than the 1337 training examples" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        (("audit",), "no mechanism was given", "--one-run"),
        ((*SMALL[:-1], "3"), "steps is 3", ""),
        ((*SMALL, "--level", "2"), "level is 2", ""),
        (("audit", "--one-run", "digits", "--canaries", "5"), "5 canaries do not fit", "between 10"),
        (("audit", "--one-run", "digits", "--plot", "x.png"), "no picture", ""),
        (("audit", "--one-run", "nothing"), "there is no recipe", ""),
    ],
)
def test_errors_name_the_fix(noisette: Command, arguments: tuple[str, ...], sentence: str, hint: str) -> None:
    noisette(*arguments).assert_refused(sentence, hint)
