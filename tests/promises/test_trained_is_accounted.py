"""What is trained is what is accounted: the real trainer, judged from outside. tests/faults plants what it must see."""

from __future__ import annotations

from typing import Any

import pytest

from noisette import Mechanism
from noisette.denoisers import KS, Chain, Denoiser, Identity, JamesStein, LowPass, Score
from noisette.encoders import L2, Ranked
from noisette.noise import Gaussian, Laplace, StudentT
from tests.support.run_record import findings, is_post_processing, record
from tests.support.tiny_run import DIM, EXAMPLES, examples, trainer_of

RATE = 0.05  # two of forty examples: every eighth batch is empty
STEPS = 160  # 45,280 residuals: noise x0.9 is far outside


def _mechanism(name: str, steps: int = STEPS) -> Mechanism:
    return {
        "L2 and Gaussian": Mechanism(L2(dim=DIM, radius=0.5), Gaussian(scale=0.8), RATE, steps),
        "Ranked and Student-t": Mechanism(Ranked(dim=DIM), StudentT(df=9, scale=0.5), RATE, steps),
        "Ranked and Laplace": Mechanism(Ranked(dim=DIM), Laplace(scale=0.5), RATE, steps),
    }[name]


NAMES = ("L2 and Gaussian", "Ranked and Student-t", "Ranked and Laplace")


def _judged(
    monkeypatch: pytest.MonkeyPatch, mechanism: Mechanism, denoiser: Denoiser | None = None, **options: Any
) -> list[str]:
    data = examples()
    trainer = trainer_of(mechanism, data=data, denoiser=denoiser or Identity(), lr=0.01, seed=11, **options)
    steps = record(monkeypatch, trainer)
    return findings(steps, mechanism, trainer, data)


@pytest.mark.parametrize("name", NAMES)
def test_trained_is_accounted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _judged(monkeypatch, _mechanism(name), LowPass(beta=0.5), chunk=2) == []


@pytest.mark.parametrize(
    "denoiser",
    [Identity(), KS(), Score(), JamesStein(), LowPass(), Chain((Score(), LowPass()))],
    ids=lambda denoiser: type(denoiser).__name__,
)
def test_every_update_is_post_processing(denoiser: Denoiser, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = _mechanism("Ranked and Student-t", steps=20)
    trainer = trainer_of(mechanism, denoiser=denoiser, seed=11)
    assert is_post_processing(record(monkeypatch, trainer), mechanism, trainer, EXAMPLES)
