"""What is trained is what is accounted: the real trainer, judged from outside, and faults that the judge must see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from noisette import L2, Gaussian, Laplace, Mechanism, Private, Ranked, Released, StudentT
from noisette.denoise import KS, Chain, Denoiser, Identity, JamesStein, LowPass, Score
from noisette.encode import Encoder
from noisette.training import PrivateRun, private_run
from tests.training.record import findings, is_post_processing, record
from tests.training.tiny import DIM, EXAMPLES, examples, trainer_of

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


# -- planted faults ----------------------------------------------------------------------------------------------------


def _noise_times(factor: float) -> Callable[..., None]:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        release = private_run.release

        def weaker(mechanism: Mechanism, total: Private, **options: Any) -> Released:
            out, values = release(mechanism, total, **options), total.unsafe_values()
            return Released(values + factor * (out.values - values), out.noise, out.reproducible)

        monkeypatch.setattr(private_run, "release", weaker)

    return plant


def _no_noise_on_empty_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    release = private_run.release

    def skipping(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        if total.unsafe_values().count_nonzero():
            return release(mechanism, total, **options)
        return Released(total.unsafe_values(), mechanism.noise, reproducible=True)

    monkeypatch.setattr(private_run, "release", skipping)


def _noise_after_denoising(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: PrivateRun) -> Released:
        mechanism = self.run[0]
        total = self._private_sum(mechanism)
        self._pay(0)
        early = Released(total.unsafe_values(), mechanism.noise, reproducible=True)
        denoised, self.state = self.denoiser.update(early, self.state)
        released = private_run.release(mechanism, Private(denoised.values), generator=self._noise)
        self._gradients.write(released.values / (mechanism.rate * len(self._inputs)))
        self.updates += 1
        return released

    monkeypatch.setattr(PrivateRun, "step", step)


def _noise_once_per_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: PrivateRun) -> Released:
        mechanism = self.run[0]
        index = torch.from_numpy(private_run.PoissonSampler(len(self._inputs), RATE, self._sampling).draw())
        self._pay(0)
        values = torch.zeros(DIM, dtype=torch.float64)
        for rows in self._gradients.chunks(self._inputs[index], self._targets[index]):
            part = mechanism.encoder.encode_sum(rows)
            values = values + private_run.release(mechanism, part, generator=self._noise).values
        released = Released(values, mechanism.noise, reproducible=True)
        denoised, self.state = self.denoiser.update(released, self.state)
        self._gradients.write(denoised.values / (mechanism.rate * len(self._inputs)))
        self.updates += 1
        return denoised

    monkeypatch.setattr(PrivateRun, "step", step)


def _divided_by_the_realised_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    step, draw = PrivateRun.step, private_run.PoissonSampler.draw
    sizes: list[int] = []

    def counted(self: private_run.PoissonSampler) -> Any:
        index = draw(self)
        sizes.append(len(index))
        return index

    def divided(self: PrivateRun) -> Released:
        out = step(self)
        self._gradients.write(out.values / max(1, sizes[-1]))
        return out

    monkeypatch.setattr(private_run.PoissonSampler, "draw", counted)
    monkeypatch.setattr(PrivateRun, "step", divided)


def _encoding_dropped_on_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    encode_sum = Encoder.encode_sum

    def partial(self: Encoder, rows: Tensor, groups: Tensor | None = None) -> Private:
        values = encode_sum(self, rows, groups).unsafe_values().clone()
        values[-123:] = rows[:, -123:].sum(dim=0)  # the last layer as it is
        return Private(values)

    monkeypatch.setattr(Encoder, "encode_sum", partial)


def _ranks_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "encode", lambda self, rows: rows.double() * 3)


def _twice_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = private_run.PoissonSampler
    monkeypatch.setattr(private_run, "PoissonSampler", lambda n, rate, generator: honest(n, 2 * rate, generator))


def _noise_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    release, kept = private_run.release, []

    def repeating(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        if not kept:
            kept.append(release(mechanism, total, **options).values - total.unsafe_values())
        return Released(total.unsafe_values() + kept[0], mechanism.noise, reproducible=True)

    monkeypatch.setattr(private_run, "release", repeating)


FAULTS = {
    "noise x0.9": (_noise_times(0.9), "the noise has another law"),
    "noise x0.7": (_noise_times(0.7), "the noise has another law"),
    "no noise on empty batches": (_no_noise_on_empty_batches, "the noise has another law"),
    "the same noise every step": (_noise_repeated, "the noise has another law"),
    "noise after denoising": (_noise_after_denoising, "the released sum is not that of the encoded gradients"),
    "noise once per chunk": (_noise_once_per_chunk, "not one release for each step"),
    "realised batch size": (
        _divided_by_the_realised_batch,
        "the update is not the denoised release over the expected batch size",
    ),
    "encoding dropped on one layer": (
        _encoding_dropped_on_one_layer,
        "the released sum is not that of the encoded gradients",
    ),
    "no encoding": (_ranks_dropped, "an encoded row lies outside the image"),
    "twice the rate": (_twice_the_rate, "the batches are not Poisson"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["L2 and Gaussian", "Ranked and Student-t"])
def test_faults_are_seen(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, expected = FAULTS[fault]
    plant(monkeypatch)
    assert any(found.startswith(expected) for found in _judged(monkeypatch, _mechanism(name), LowPass(), chunk=2))
