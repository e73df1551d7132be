"""P4 and P5 through the whole step: what a run adds to its sums is the declared law, from a stream of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, Noise, Private, Released, make_private
from noisette.encoders import Ranked
from noisette.noise import Gaussian, Laplace, StudentT
from noisette.training import PrivateRun, private_run
from tests.conformance.statistics import sampling_faults
from tests.support.helpers import spread
from tests.support.tiny_run import examples

DIM, STEPS = 8000, 50


def _run(noise: Noise, rate: float, steps: int = STEPS, seed: int | None = 21) -> PrivateRun:
    """A wide linear model on forty examples."""
    x, y = examples()
    mechanism = Mechanism(Ranked(dim=DIM), noise, rate, steps)
    inputs = x.repeat(1, 267)[:, :799]
    return make_private(nn.Linear(799, 10).double(), nn.CrossEntropyLoss(), (inputs, y), mechanism, seed=seed)


def _residuals(monkeypatch: pytest.MonkeyPatch, private: PrivateRun) -> Tensor:
    """What each release has more than its sum, (steps, dim)."""
    found: list[Tensor] = []
    release = private_run.release

    def watched(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        values = total.unsafe_values().clone()
        released = release(mechanism, total, **options)
        found.append(released.values - values)
        return released

    with monkeypatch.context() as patch:
        patch.setattr(private_run, "release", watched)
        list(private)
    return torch.stack(found)


@pytest.mark.parametrize("rate", [0.05, 1e-12], ids=["usual batches", "empty batches"])
@pytest.mark.parametrize("noise", [Gaussian(0.8), StudentT(9, 0.5), Laplace(0.5)], ids=repr)
def test_the_noise_of_a_run_is_the_declared_law(noise: Noise, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """4e5 residuals at a level of 1e-6 a test: enough to see noise x0.98, and noise that comes again."""
    residuals = _residuals(monkeypatch, _run(noise, rate))
    assert residuals.shape == (STEPS, DIM)
    assert torch.all((residuals != 0).any(dim=0)), "a coordinate without noise"
    drawn = spread(Mechanism(Ranked(dim=DIM), noise, rate, STEPS), residuals.flatten())
    assert sampling_faults(noise, drawn) == []


def test_noise_and_batches_come_from_streams_of_their_own() -> None:
    """Also under one seed: whoever sees a batch must not see the noise in it."""
    private = _run(Gaussian(1.0), rate=0.05, seed=3)
    noise, batches = private._noise.random_words(10_000), private._sampling.random_words(10_000)
    assert len(np.unique(np.concatenate([noise, batches]))) == 20_000  # a collision has probability 1e-11
