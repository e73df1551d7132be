"""One run on a case whose truth is known: every canary has a coordinate of its own, and one step releases them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from noisette import Mechanism, guarantee, make_private
from noisette.audit import OneRun, one_run
from noisette.audit.one_run import Score
from noisette.encoders import L2
from noisette.noise import Gaussian
from tests.support.audited_mechanisms import quieter
from tests.support.helpers import refused

M = 2000
CLAIM = Mechanism(L2(dim=M), Gaussian(scale=1.0), rate=1.0, steps=1)
NOTHING, CANARIES = (torch.zeros(1, M), torch.zeros(1)), (torch.eye(M), torch.zeros(M))


def _train(batch: tuple[Tensor, Tensor]) -> Score:
    private = make_private(
        torch.nn.Linear(M, 1, bias=False), lambda out, _: out.sum(), batch, CLAIM, chunk=M, seed=len(batch[0])
    )
    released = private.step().values.float()
    return lambda batch: batch[0] @ released


def _audit(seed: int, **options: Any) -> OneRun:
    return one_run(_train, NOTHING, CANARIES, CLAIM, seed=seed, **options)


def test_an_honest_run_passes_and_the_bound_is_below_the_truth() -> None:
    truth = guarantee(CLAIM, 1e-5).epsilon
    for seed in range(4):
        found = _audit(seed)
        assert found.verdict == "consistent with the claim"
        assert found.claimed == truth
        assert 1.0 < found.lower < found.lower_gaussian < truth
        assert found.guesses == (40, 200, 600, 2000)
        assert all(size / 2 < right <= size for size, right in zip(found.guesses, found.num_correct, strict=True))


def test_a_tenth_of_the_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch, 0.1)
    found = _audit(0)
    assert found.verdict == "REFUTED"
    assert found.lower > found.claimed
    assert found.lower_gaussian > found.lower


def test_half_of_the_noise_is_refuted_by_the_curve_only(monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch, 0.5)
    found = _audit(0)
    assert found.refuted
    assert found.lower < found.claimed


def test_more_confidence_is_a_lower_bound() -> None:
    assert _audit(0, confidence=0.999).lower < _audit(0).lower


def test_scores_without_meaning_prove_nothing() -> None:
    found = one_run(lambda _: lambda batch: torch.zeros(len(batch[0])), NOTHING, CANARIES, CLAIM, seed=1)
    assert found.lower == 0
    assert not found.refuted


def test_json() -> None:
    value = _audit(0).to_dict()
    assert {"verdict", "level", "claimed", "lower", "confidence"} <= set(value)


def test_batches_of_any_kind() -> None:
    """The same attack on a dict, with an objective."""

    def train(batch: dict[str, Tensor]) -> Score:
        model = torch.nn.Linear(M, 1, bias=False)
        private = make_private(model, lambda model, batch: model(batch["x"])[:, 0], batch, CLAIM, chunk=M, seed=7)
        released = private.step().values.float()
        return lambda batch: batch["x"] @ released

    found = one_run(train, {"x": NOTHING[0]}, {"x": CANARIES[0]}, CLAIM, seed=0)
    assert found.lower > 1.0
    assert not found.refuted
    with refused(match="unlike the examples"):
        one_run(train, {"x": NOTHING[0]}, {"z": CANARIES[0]}, CLAIM)


def test_errors() -> None:
    with refused(match="3 canaries"):
        one_run(_train, NOTHING, (torch.eye(3), torch.zeros(3)), CLAIM)
    with refused(match="confidence is 1"):
        _audit(0, confidence=1.0)
    with refused(match="scores have shape"):
        one_run(lambda _: lambda batch: batch[0], NOTHING, CANARIES, CLAIM)
