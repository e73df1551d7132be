"""DP-SGD here is DP-SGD there: the clipped sum of Opacus on the same batch, before any noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import L2, Gaussian, Mechanism, Private, Released, make_private
from noisette.models import build
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
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)


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
