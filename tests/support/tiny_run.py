"""A run of a millisecond a step: forty examples, 283 parameters, float64 so that nothing rounds visibly."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette.accounting import Ledger
from noisette.app.recipes import Recipe
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import Trainer

EXAMPLES = 40
DIM = 283
RECIPE_STEPS = 240  # above 200, so that steps are paid two at a time


def examples(seed: int = 0, count: int = EXAMPLES) -> tuple[Tensor, Tensor]:
    """Inputs (count, 3) and labels (count,) of three classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, dtype=torch.float64, generator=generator)
    return x, torch.randint(3, (count,), generator=generator)


def network() -> nn.Sequential:
    """Two layers, always with the same weights."""
    model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 3)).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=generator) / 2)
    return model


def gaussian(steps: int = 5, rate: float = 0.2) -> Mechanism:
    return Mechanism(L2(dim=DIM), Gaussian(scale=1.0), rate=rate, steps=steps)


def trainer_of(
    mechanism: Mechanism | tuple[Mechanism, ...],
    ledger: Path | None = None,
    data: tuple[Tensor, Tensor] | None = None,
    lr: float = 0.1,
    averaging: float = 0.0,
    **options: Any,
) -> Trainer:
    """A trainer of the tiny network with momentum and a decaying rate; `options` go to `make_private`."""
    x, y = data or examples()
    model = network().to(x.dtype)
    ledgers = () if ledger is None else Ledger(ledger, data="tiny")
    private = make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism, ledger=ledgers, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    return Trainer(private, optimizer, scheduler, averaging=averaging)


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors])


def recipe(folder: Path, **changes: Any) -> Recipe:
    """A run of milliseconds on a table of sixty rows."""
    path = folder / "table.csv"
    if not path.exists():
        rng = random.Random(0)
        rows = [f"{rng.gauss(0, 1):.3f},{rng.gauss(0, 1):.3f},{rng.randrange(2)}" for _ in range(60)]
        path.write_text("a,b,label\n" + "\n".join(rows) + "\n")
    plan = Recipe(
        name="tiny", data=f"csv:{path}:label:0.2", model="linear", encoder="L2()", noise="Gaussian(scale=5.0)",
        steps=RECIPE_STEPS, batch=5, lr=0.1, momentum=0.5, averaging=0.5, denoiser="LowPass()", evaluations=2,
    )  # fmt: skip
    return plan.changed(**changes)


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files cannot grow beyond `size` bytes: what a full disk does, without one."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
