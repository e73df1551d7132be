"""What trying a model takes before the first step, and what is said meanwhile."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette._gradients import PerExampleGradients, probe, waiting
from noisette._gradients.grad_forms import GradForm
from noisette._gradients.layer_strategy import Layers
from noisette._pytree import Batch, size
from noisette.encoders import L2
from noisette.noise import Gaussian

LABELS = torch.zeros(0, dtype=torch.long)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Turned(nn.Module):
    """Channels last in memory, as torchvision's ConvNeXt has them in front of its pooling."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def test_no_more_is_tried_than_batches_need(monkeypatch: pytest.MonkeyPatch) -> None:
    given, honest = list[int](), Layers.terms

    def terms(self: Layers, batch: Batch, counted: int | None = None) -> Sequence[GradForm]:
        given.append(size(batch))
        return honest(self, batch, counted)

    monkeypatch.setattr(Layers, "terms", terms)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=1)
    make_private(model, nn.CrossEntropyLoss(), (torch.randn(160, 16), torch.zeros(160, dtype=torch.long)), mechanism)
    assert max(given) == 32, "batches of 16, and a few more"
    assert sum(given) <= 10 * 16, "ten steps"


def test_means_over_images_with_channels_last_are_no_reason_for_the_loop() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Turned(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    assert PerExampleGradients(model, nn.CrossEntropyLoss()).trial((torch.empty(0, 3, 8, 8), LABELS)).path == "layers"


@pytest.mark.parametrize("value", [0.0, 1.0, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("other", [0.0, 1.0, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("at", [0, probe._PIECE, 2 * probe._PIECE])
def test_near_is_what_torch_calls_close(value: float, other: float, at: int) -> None:
    one, two = torch.linspace(-1, 1, 2 * probe._PIECE + 1).repeat(2, 1).unbind()
    one[at], two[at] = value, other
    two[5] += 1e-3
    for size_ in (0.0, 1.0, 10.0):
        tolerance = torch.finfo(torch.float32).eps ** 0.5 * size_
        expected = torch.allclose(one, two, rtol=0.0, atol=tolerance, equal_nan=True)
        assert probe._close(one, two, tolerance) == expected
    finite = one.abs()[one.isfinite()]
    assert probe._largest(one) == float(finite.max())


def test_whoever_waits_at_a_terminal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.9, 2.1, 3.0, 4.3])
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(now))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with waiting.waiting("Net"):
        for number in range(4):
            waiting.doing(f"batches of {number}")
    waiting.doing("a step, which nobody is told of")
    assert terminal.getvalue().splitlines() == [
        "trying Net on made-up examples: batches of 1 (2 s)",
        "trying Net on made-up examples: batches of 3 (4 s)",
    ]


def test_the_check_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_FIRST", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    gradients, batch = (
        PerExampleGradients(nn.Linear(4, 2), nn.CrossEntropyLoss()),
        (torch.randn(5, 4), LABELS.new_zeros(5)),
    )
    gradients.check(batch)
    said = terminal.getvalue()
    assert said.startswith("trying Linear on made-up examples: example 1 of 4 alone and in a batch")
    for _ in gradients.chunks(batch):
        pass
    assert terminal.getvalue() == said
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    gradients.check(batch)
    assert not log.getvalue()
