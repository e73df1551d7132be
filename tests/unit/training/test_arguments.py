"""Arguments that are easily mistaken are refused in one sentence, before anything is done with the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noisette import Ledger, Mechanism, check, make_private, objectives, plan
from noisette.denoisers import KS
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import refused

DATA = (torch.zeros(40, 4), torch.zeros(40, dtype=torch.long))
MECHANISM = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=2)


class Unread:
    """A data set that nobody may look at."""

    def __len__(self) -> int:
        raise AssertionError("the arguments come first")

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("the arguments come first")


def _refused(sentence: str, hint: str, **changes: Any) -> None:
    given = {"model": nn.Linear(4, 2), "goal": nn.CrossEntropyLoss(), "data": Unread(), "mechanism": MECHANISM}
    with refused(InvalidInput) as caught:
        make_private(**(given | changes))
    assert sentence in caught.value.sentence
    assert hint in caught.value.hint


@pytest.mark.parametrize("ledger", ["l.jsonl", Path("l.jsonl"), ["l.jsonl"], [None], 3, Ledger], ids=repr)
def test_ledgers(ledger: Any) -> None:
    _refused("not a Ledger", 'Ledger("l.jsonl")', ledger=ledger)


def test_no_ledger(tmp_path: Path) -> None:
    for none in (None, (), []):
        assert make_private(nn.Linear(4, 2), nn.CrossEntropyLoss(), DATA, MECHANISM, ledger=none).steps_paid == 0
    with Ledger(tmp_path / "l.jsonl", data="demo") as book, Ledger(tmp_path / "all.jsonl", data="demo") as other:
        make_private(nn.Linear(4, 2), nn.CrossEntropyLoss(), DATA, MECHANISM, ledger=[book, other]).step()
        assert book.mechanisms() == other.mechanisms() != ()


@pytest.mark.parametrize(
    ("denoiser", "hint"), [("KS()", "parse(text, Denoiser)"), (KS, "KS()"), (len, "KS()"), (0, "KS()")], ids=str
)
def test_denoisers(denoiser: Any, hint: str) -> None:
    _refused("not a Denoiser", hint, denoiser=denoiser)


@pytest.mark.parametrize(
    ("goal", "hint"),
    [
        (None, "nn.CrossEntropyLoss()"),
        ("cross_entropy", "objective(model, batch)"),
        (DATA, "objective(model, batch)"),
        (nn.MSELoss, "nn.MSELoss()"),
        (objectives.TokenCrossEntropy, "one of it: TokenCrossEntropy()"),
    ],
    ids=["None", "text", "the data", "a class of torch", "a class of ours"],
)
def test_goals(goal: Any, hint: str) -> None:
    _refused("the goal is", hint, goal=goal)
    if goal is not None:
        assert "the goal is" in str(check(nn.Linear(4, 2), DATA, goal=goal))


@pytest.mark.parametrize("mechanism", [repr(MECHANISM), None, torch.zeros(2), torch.tensor(1.0), [MECHANISM, None]])
def test_mechanisms(mechanism: Any) -> None:
    hint = "parse(text, Mechanism)" if isinstance(mechanism, str) else "Mechanism(encoder"
    _refused("not a Mechanism", hint, mechanism=mechanism)


@pytest.mark.parametrize("model", ["net", None, nn.Linear, len], ids=str)
def test_models(model: Any) -> None:
    _refused("the model is", "nn.Module", model=model)
    with refused(InvalidInput, match="the model is"):
        plan(model, Unread(), epsilon=1.0, delta=1e-5, batch=4, steps=1)


def test_models_without_numbers() -> None:
    _refused("when it first runs", "run it once", model=nn.LazyLinear(2))
    with refused(InvalidInput, match="when it first runs"):
        plan(nn.LazyLinear(2), DATA, epsilon=1.0, delta=1e-5, batch=4, steps=1)
    shapes_only = nn.Linear(4, 2, device="meta")
    _refused("on the meta device", "move it to a device", model=shapes_only)
    assert plan(shapes_only, DATA, epsilon=1.0, delta=1e-5, batch=4, steps=1).encoder.dim == 10
    frozen = nn.Sequential(nn.Linear(4, 4, device="meta").requires_grad_(False), nn.Linear(4, 2))
    _refused("on the meta device", "move it to a device", model=frozen)


def test_numbers_without_meaning() -> None:
    _refused("per_unit is -3", "integer >= 1", per_unit=-3)
    _refused("seed is 1.5", "leave it out", seed=1.5)
