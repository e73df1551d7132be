"""What a process of a run did, taken down at `release`. For children only: nothing is undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from noisette import Generator, Mechanism, Private, Released, make_private
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import PrivateRun, _rank_slice, private_run

ONE_HOT = 50


def watch(*, noise: bool = True) -> tuple[list[Tensor], list[Tensor]]:
    """From now on, the private sums and the releases of every step; without `noise` the sums are released as is."""
    sums: list[Tensor] = []
    releases: list[Tensor] = []
    release = private_run.release

    def watched(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        values = total.unsafe_values().clone()
        out = release(mechanism, total, **options) if noise else Released(values, mechanism.noise, reproducible=True)
        sums.append(values)
        releases.append(out.values.clone())
        return out

    private_run.release = watched  # type: ignore[assignment]
    return sums, releases


def one_hot_run(mechanism: Mechanism | None = None, rate: float = 0.1, steps: int = 2000, **options: Any) -> PrivateRun:
    """A model whose gradient is its input, on unit vectors: coordinate i of a sum says how often example i is in it."""
    model = nn.Linear(ONE_HOT, 1, bias=False).double()
    mechanism = mechanism or Mechanism(L2(dim=ONE_HOT), Gaussian(scale=1.0), rate, steps)
    x = torch.eye(ONE_HOT, dtype=torch.float64)
    return make_private(model, _linear_loss, (x, torch.zeros(ONE_HOT)), mechanism, **options)


def _linear_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.sum() + 0 * targets.sum()


def plant_before(name: str, fault: Callable[..., Any]) -> None:
    """Put `fault(original, ...)` in the place of a name that the private step uses."""
    module = next(module for module in (private_run, _rank_slice) if hasattr(module, name))
    original = getattr(module, name)
    setattr(module, name, lambda *args, **options: fault(original, *args, **options))


def sum_the_noise() -> None:
    """A fault: every process draws noise of its own, and the draws are added up."""
    _noise_of_all(lambda size: 1.0)


def average_the_noise() -> None:
    """A fault: every process draws noise of its own, and the draws are averaged: weaker than what is accounted."""
    _noise_of_all(lambda size: 1.0 / size)


def _noise_of_all(factor: Callable[[int], float]) -> None:
    def release(honest: Any, mechanism: Mechanism, total: Private, *, generator: Generator) -> Released:
        own = _OWN.setdefault(id(generator), Generator(100 + dist.get_rank()))
        values = total.unsafe_values().clone()
        noise = honest(mechanism, total, generator=own).values - values
        dist.all_reduce(noise)
        return Released(values + factor(dist.get_world_size()) * noise, mechanism.noise, reproducible=True)

    plant_before("release", release)


_OWN: dict[int, Generator] = {}
