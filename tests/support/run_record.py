"""What a run did, taken down at its seams, and the findings of a judge who recomputes all of it another way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, Private, Released
from noisette.encoders import L2, Encoder
from noisette.training import PoissonSampler, Trainer, private_run
from tests.conformance.statistics import ks_rejects
from tests.support.helpers import rows_within
from tests.support.poisson_test import sampling_faults
from tests.support.tiny_run import flat


@dataclass
class Step:
    """One step: parameters when the batch was drawn, its indices, encoded rows, sums, releases, the gradient set."""

    theta: Tensor
    index: np.ndarray
    encoded: list[Tensor] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    released: list[Tensor] = field(default_factory=list)
    grad: Tensor = field(default_factory=lambda: torch.empty(0))


def record(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> list[Step]:
    """Train to the end, taking down every step. Faults that are to be seen are planted before."""
    steps: list[Step] = []
    draw, encode, release = PoissonSampler.draw, Encoder.encode, private_run.release

    def watched_draw(self: PoissonSampler) -> np.ndarray:
        index = draw(self)
        steps.append(Step(flat(trainer.model.parameters()), index))
        return index

    def watched_encode(self: Encoder, rows: Tensor) -> Tensor:
        out = encode(self, rows)
        steps[-1].encoded.append(out)
        return out

    def watched_release(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        steps[-1].sums.append(total.unsafe_values().clone())
        out = release(mechanism, total, **options)
        steps[-1].released.append(out.values.clone())
        return out

    with monkeypatch.context() as patch:
        patch.setattr(PoissonSampler, "draw", watched_draw)
        patch.setattr(Encoder, "encode", watched_encode)
        patch.setattr(private_run, "release", watched_release)
        for _ in trainer.run():
            steps[-1].grad = flat(p.grad for p in trainer.model.parameters())
    return steps


def findings(steps: list[Step], mechanism: Mechanism, trainer: Trainer, data: tuple[Tensor, Tensor]) -> list[str]:
    """Where the recorded steps are not what `mechanism` accounts for. Levels: 1e-6 for each statistical test."""
    found = []
    if len(steps) != mechanism.steps or any(len(step.released) != 1 for step in steps):
        found.append("not one release for each step")
    residuals = torch.cat([y - s for step in steps for y, s in zip(step.released, step.sums, strict=True)])
    if ks_rejects(mechanism.noise, residuals.numpy()):
        found.append("the noise has another law")
    if faults := sampling_faults([step.index for step in steps], len(data[0]), mechanism.rate):
        found.append(f"the batches are not Poisson: {faults}")
    if not all(_in_image(rows, mechanism.encoder) for step in steps for rows in step.encoded):
        found.append("an encoded row lies outside the image")
    if not all(_is_sum(step, mechanism.encoder, trainer.model, data) for step in steps[:: max(1, len(steps) // 40)]):
        found.append("the released sum is not that of the encoded gradients")
    if not is_post_processing(steps, mechanism, trainer, len(data[0])):
        found.append("the update is not the denoised release over the expected batch size")
    return found


def _in_image(rows: Tensor, encoder: Encoder) -> bool:
    if isinstance(encoder, L2):
        return bool((torch.linalg.vector_norm(rows, dim=1) <= encoder.radius).all())
    (block,) = encoder.image.profiles
    return bool(rows_within(rows.numpy(), block).all())


def _is_sum(step: Step, encoder: Encoder, model: nn.Module, data: tuple[Tensor, Tensor]) -> bool:
    """By one backward pass for each example of the batch, at the parameters of that step."""
    after = flat(model.parameters())
    torch.nn.utils.vector_to_parameters(step.theta, model.parameters())
    expected = torch.zeros(len(step.theta), dtype=torch.float64)
    for i in step.index:
        loss = nn.functional.cross_entropy(model(data[0][i : i + 1]), data[1][i : i + 1])
        row = flat(torch.autograd.grad(loss, list(model.parameters())))
        expected += encoder.encode(row[None])[0]
    torch.nn.utils.vector_to_parameters(after, model.parameters())
    return all(torch.allclose(total, expected, rtol=1e-9, atol=1e-10) for total in step.sums)


def is_post_processing(steps: list[Step], mechanism: Mechanism, trainer: Trainer, examples: int) -> bool:
    """P12: every update recomputed from the stored releases alone, bit by bit."""
    denoiser = trainer.private.denoiser
    state = denoiser.init(mechanism.noise, mechanism.encoder.known_dim)
    for step in steps:
        if len(step.released) != 1:
            return False
        denoised, state = denoiser.update(Released(step.released[0], mechanism.noise, reproducible=True), state)
        if not torch.equal((denoised.values / (mechanism.rate * examples)).to(step.grad.dtype), step.grad):
            return False
    return True
