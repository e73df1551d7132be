"""DP-SGD here is DP-SGD there: the clipped sum of Opacus on the same batch, before any noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, Private, Released, make_private
from noisette._gradients import PerExampleGradients
from noisette.app.models import build
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import PoissonSampler, private_run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports, not ours
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

EXAMPLES = 24


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Steep, since Opacus adds 1e-6 to every norm before it divides: that must drown below the tolerance."""
    return 1000 * nn.functional.cross_entropy(outputs, targets, reduction="sum")


def _mlp() -> tuple[nn.Module, tuple[int, ...]]:
    return build("mlp", (1, 8, 8), 10, hidden=(16,)), (1, 8, 8)


def _mnist_cnn() -> tuple[nn.Module, tuple[int, ...]]:
    return build("mnist_cnn", (1, 28, 28), 10), (1, 28, 28)


def _group_norm() -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4 * 3 * 3, 10)), (3, 8, 8)


@pytest.mark.parametrize(("architecture", "clip"), [(_mlp, 3e3), (_mnist_cnn, 6e3), (_group_norm, 4.2e3)])
def test_the_clipped_sum_is_that_of_opacus(
    architecture: Callable[[], tuple[nn.Module, tuple[int, ...]]], clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, shape = architecture()
    model = model.double()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, *shape, dtype=torch.float64, generator=generator)
    x *= torch.logspace(-2, 1, EXAMPLES, dtype=torch.float64).view(-1, *[1] * len(shape))  # some rows are clipped
    y = torch.randint(10, (EXAMPLES,), generator=generator)
    ours, index = _ours(model, x, y, clip, monkeypatch)
    assert 5 < len(index) < EXAMPLES
    theirs, norms = _theirs(model, x[index], y[index], clip)
    assert norms.min() < clip < norms.max()
    # every coordinate of ours is rounded to a grid, 2**-27 of the norm that gradients are clipped to
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=len(index) * 2.0**-26 * clip)


def _ours(
    model: nn.Module, x: Tensor, y: Tensor, clip: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, np.ndarray]:
    """The private sum of one step of the real run, and the batch that it drew."""
    sums: list[Tensor] = []
    draws: list[np.ndarray] = []
    draw, release = PoissonSampler.draw, private_run.release

    def watched_draw(self: PoissonSampler) -> np.ndarray:
        draws.append(draw(self))
        return draws[-1]

    def watched_release(mechanism: Mechanism, total: Private, **options: object) -> Released:
        sums.append(total.unsafe_values().clone())
        return release(mechanism, total, **options)

    monkeypatch.setattr(PoissonSampler, "draw", watched_draw)
    monkeypatch.setattr(private_run, "release", watched_release)
    dim = sum(p.numel() for p in model.parameters())
    mechanism = Mechanism(L2(dim=dim, radius=clip), Gaussian(scale=1.0), rate=0.5, steps=1)
    make_private(model, _loss, (x, y), mechanism, chunk=5, seed=0).step()
    return sums[0], draws[0]


def _theirs(model: nn.Module, x: Tensor, y: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """What Opacus sums up, and the norms before clipping."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its use of backward hooks, not ours
        wrapped = GradSampleModule(model, loss_reduction="sum")
        parameters = list(wrapped.parameters())
        optimizer = DPOptimizer(
            torch.optim.SGD(parameters, lr=0.0),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=1,
            loss_reduction="sum",
        )
        _loss(wrapped(x), y).backward()
    rows = torch.cat([p.grad_sample.flatten(1) for p in parameters], dim=1)
    optimizer.clip_and_accumulate()
    return torch.cat([p.summed_grad.flatten() for p in parameters]), rows.norm(dim=1)


class _Masked(nn.Module):
    """The mean of word vectors that a mask shows, through a layer; takes keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        shown = attention_mask.unsqueeze(-1).float()
        return self.head((self.words(tokens) * shown).sum(1) / shown.sum(1))


def _masked_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    outputs = model(tokens=batch["tokens"], attention_mask=batch["attention_mask"])
    return nn.functional.cross_entropy(outputs, batch["labels"], reduction="none")


_WEIGHT = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64)
_LOSSES = {
    "regression": (nn.MSELoss(), lambda o, y: nn.functional.mse_loss(o, y, reduction="none").mean(1)),
    "several labels": (
        nn.BCEWithLogitsLoss(),
        lambda o, y: nn.functional.binary_cross_entropy_with_logits(o, y, reduction="none").mean(1),
    ),
    "class weights": (
        nn.CrossEntropyLoss(weight=_WEIGHT),
        lambda o, y: nn.functional.cross_entropy(o, y, weight=_WEIGHT, reduction="none"),
    ),
}


@pytest.mark.parametrize("name", [*_LOSSES, "autoencoder", "attention mask"])
def test_rows_of_other_objectives_are_those_of_opacus(name: str) -> None:
    """Opacus has no weights per class either: it gets the loss of each example, summed."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(7, 4, dtype=torch.float64, generator=generator)
    goal: Any
    if name == "attention mask":
        tokens, lengths = (
            torch.randint(9, (7, 4), generator=generator),
            torch.randint(1, 5, (7, 1), generator=generator),
        )
        labels = torch.randint(3, (7,), generator=generator)
        batch: Any = {"tokens": tokens, "attention_mask": (torch.arange(4) < lengths).long(), "labels": labels}
        model, goal, theirs = _Masked(), _masked_loss, lambda model: _masked_loss(model, batch)
    elif name == "autoencoder":
        model, batch = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 4)).double(), x

        def goal(model: nn.Module, batch: Tensor) -> Tensor:
            return (model(batch) - batch).square().mean(1)

        def theirs(model: nn.Module) -> Tensor:
            return goal(model, x)
    else:
        goal, of_each = _LOSSES[name]
        y = torch.rand(7, 3, dtype=torch.float64, generator=generator)
        y = y.argmax(1) if name == "class weights" else y
        model, batch = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double(), (x, y)

        def theirs(model: nn.Module) -> Tensor:
            return of_each(model(x), y)

    ours = torch.cat([rows.clone() for rows in PerExampleGradients(model, goal, chunk=3).chunks(batch)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(model, loss_reduction="sum")
        theirs(wrapped).sum().backward()
    expected = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1)
    exact = ours.dtype == torch.float64  # its rule for embeddings knows float32 only
    torch.testing.assert_close(ours, expected, rtol=1e-9 if exact else 1e-4, atol=1e-12 if exact else 1e-7)
