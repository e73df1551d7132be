"""Every name of the library that the golden tests use: a renaming edits this file, and no frozen entry.

Entries of `golden.json` are called by the labels that stand here, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, Poisson, Private, _native, guarantee, make_private, release, tradeoff
from noisette._spec import registered
from noisette.accounting._truncation import untruncated
from noisette.accounting.base import Accountant, accountants
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import GeometricNumTrials, LogarithmicNumTrials, NumTrials, PoissonNumTrials
from noisette.accounting.pld import privacy_loss
from noisette.app.commands import main
from noisette.app.recipes import Recipe
from noisette.encoders import L2, Encoder, Ranked, Snap
from noisette.encoders.profiles import Blocks, Empirical, HalfNormal, PaperGaussian, Power, Profiles, Quantiles, Tails
from noisette.errors import Unaccountable
from noisette.noise import (
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Logistic,
    Noise,
    ScipyNoise,
    Sech,
    StudentT,
    VarianceGamma,
)
from noisette.private_means import plan_means, private_means
from noisette.random import Generator
from noisette.training import private_run
from noisette.training._batching import PoissonSampler
from noisette.training._units import Units
from tests.support.synthetic_datasets import idx_set

NOISES: dict[str, Noise] = {
    "gaussian": Gaussian(scale=1.1),
    "student-9": StudentT(df=9, scale=1.0),
    "student-1.5": StudentT(df=1.5, scale=2.0),
    "student-30": StudentT(df=30, scale=1.0),
    "laplace": Laplace(scale=1.0),
    "cauchy": Cauchy(scale=2.0),
    "sech": Sech(scale=1.0),
    "logistic": Logistic(scale=1.0),
    "variance-gamma-2": VarianceGamma(shape=2, scale=1.0),
    "variance-gamma-1.3": VarianceGamma(shape=1.3, scale=1.5),
    "generalized-gaussian-1.5": GeneralizedGaussian(shape=1.5, scale=1.0),
    "generalized-gaussian-0.7": GeneralizedGaussian(shape=0.7, scale=0.5),
    "generalized-gaussian-4": GeneralizedGaussian(shape=4, scale=2.0),
    "scipy-t": ScipyNoise("t", 5, scale=1.0),
    "scipy-hypsecant": ScipyNoise("hypsecant", scale=1.5),
}

_DIM = 40
_FEW = HalfNormal(levels=2)

PROFILES: dict[str, Profiles] = {
    "half-normal": HalfNormal(),
    "half-normal-2": _FEW,
    "paper": PaperGaussian(n=5, seed=1),
    "paper-levels": PaperGaussian(n=3, levels=8),
    "quantiles": Quantiles(law=Laplace(), levels=6),
    "power": Power(exponent=0.75, levels=6),
    "tails": Tails(shapes=(2.0, 0.5), levels=4),
    "empirical": Empirical(levels=(0.0, 0.05, 0.3), counts=(15, 20, 5)),
    "blocks": Blocks(dims=(30, 10), shares=(0.6, 0.3), profiles=_FEW),
}

ENCODERS: dict[str, Encoder] = {
    "l2": L2(dim=_DIM),
    "l2-radius": L2(dim=_DIM, radius=0.1),
    "l2-micro": L2(dim=_DIM, micro_batch=4),
    **{f"ranked-{label}": Ranked(dim=_DIM, profiles=family) for label, family in PROFILES.items()},
    "ranked-radius": Ranked(dim=_DIM, profiles=_FEW, radius=0.1),
    "ranked-micro": Ranked(dim=_DIM, profiles=_FEW, micro_batch=4),
    "snap": Snap(dim=_DIM, profiles=_FEW),
    "snap-tails": Snap(dim=_DIM, profiles=PROFILES["tails"]),
}

TRIALS: dict[str, Callable[[float], NumTrials]] = {
    "geometric": GeometricNumTrials,
    "logarithmic": LogarithmicNumTrials,
    "poisson": PoissonNumTrials,
}

ACCOUNTANTS = {"pld": "pld", "rdp": "rdp", "rdp-classic": "rdp-classic"}
"""Labels, and what accountants are called now."""

_BASES: dict[str, tuple[type, Sequence[Any]]] = {
    "noises": (Noise, list(NOISES.values())),
    "encoders": (Encoder, list(ENCODERS.values())),
    "profiles": (Profiles, list(PROFILES.values())),
    "accountants": (Accountant, [accountants()[name] for name in ACCOUNTANTS.values()]),
    "trials": (NumTrials, [law(2.0) for law in TRIALS.values()]),
}


def bundled() -> dict[str, tuple[set[type], set[type]]]:
    """By kind, the classes that the library brings, and those of them that something here is frozen of."""
    return {
        kind: (
            {one for one in registered(base).values() if one.__module__.startswith("noisette.")},
            {type(one) for one in frozen},
        )
        for kind, (base, frozen) in _BASES.items()
    }


# -- mechanisms and what they cost -------------------------------------------------------------------------------------


def mechanism(
    encoder: Encoder,
    noise: Noise,
    rate: float,
    steps: int,
    *,
    largest: int | None = None,
    population: int | None = None,
    unit: bool = False,
) -> Mechanism:
    """With `largest`, batches of a `population` are cut to that size."""
    sampling = Poisson(rate, max_batch=largest, population=population, unit="unit" if unit else "example")
    return Mechanism(encoder, noise, sampling=sampling, steps=steps)


def search(runs: Sequence[Mechanism], trials: NumTrials, score: Mechanism | None = None) -> BestOf:
    return BestOf(tuple(runs), trials, score)


def epsilon(spent: Sequence[Mechanism | BestOf], delta: float, accountant: str) -> float | None:
    """None where this accountant has no epsilon for it."""
    try:
        return guarantee(spent, delta, accountant).epsilon
    except Unaccountable:
        return None


def deltas(spent: Sequence[Mechanism | BestOf]) -> list[float]:
    """At a few epsilons, of batches that are not cut; then of all that is spent, what an attacker misses."""
    at = privacy_loss(untruncated(tuple(spent))).delta(np.array([0.0, 0.25, 0.5, 1.0]))
    missed = tradeoff(spent).false_negative([0.001, 0.1, 0.5])
    return [float(value) for value in (*at, *missed)]


# -- numbers that are drawn --------------------------------------------------------------------------------------------


def batches(examples: int, rate: float, count: int, seed: int, largest: int | None = None) -> list[list[int]]:
    sampler = PoissonSampler(examples, rate, Generator(seed, purpose="sampling"), largest)
    return [sampler.draw().tolist() for _ in range(count)]


def of_units(ids: Sequence[int], per_unit: int, drawn: Any, seed: int) -> list[list[int]]:
    """Examples of the units that were drawn, and their groups."""
    units = Units.of(list(ids), examples=len(ids), per_unit=per_unit)
    return [part.tolist() for part in units.sample_members(drawn, Generator(seed, purpose="sampling"))]


class _Product(nn.Module):
    """A model whose gradient for an example is the example, exactly."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows * self.weight).sum(dim=-1)


def gradients(
    rows: Tensor, planned: Mechanism | Sequence[Mechanism], steps: int, seed: int, units: Any = None
) -> list[Tensor]:
    """What a seeded run writes into `grad` at each of its first steps; `rows` (N, d) are the gradients of examples."""
    model = _Product(rows.shape[1]).double()
    private = make_private(
        model, lambda outputs, _: outputs.sum(), (rows.double(), torch.zeros(len(rows))), planned,
        units=units, per_unit=2, seed=seed,
    )  # fmt: skip
    found = []
    for _ in range(steps):
        private.step()
        assert model.weight.grad is not None
        found.append(model.weight.grad.clone())
    return found


def encoded_total(encoder: Encoder, rows: Tensor, groups: Tensor | None = None) -> Tensor:
    """The sum of encoded `rows`, in multiples of the grid that it lies on."""
    if groups is None and encoder.micro_batch > 1:
        groups = torch.arange(len(rows)) % 3
    return encoder.encode_sum(rows, groups).unsafe_values() / encoder.quantum


def released_cells(planned: Mechanism, total: Tensor, seed: int) -> Tensor:
    """A release of `total`, a sum in multiples of the encoder's grid, in cells of the release's own grid."""
    step = planned.encoder.quantum
    released = release(planned, Private(total.double() * step), generator=Generator(seed, purpose="noise"))
    return released.values / planned.grid.release_quantum


KERNEL = "NOISETTE_KERNEL"
"""The variable of the environment that picks a variant of the native kernel, or turns it "off"."""
CACHE, DATA = "NOISETTE_CACHE", "NOISETTE_DATA"
"""Those that say where files are kept, and where data sets are."""


def variants() -> list[str]:
    """The variants that run on this machine."""
    return list(_native.native.variants()) if hasattr(_native, "native") else []


# -- the command line --------------------------------------------------------------------------------------------------

_WHICH = ("--encoder", "L2(dim=20)", "--rate", "2/10")
_COSTS = (*_WHICH, "--noise", "Gaussian(scale=4.0)", "--steps", "5")
_TRAINED, _REAL = "runs/tiny-0001", "runs/real-0001"
_SEARCH = ("--trials", "2", "--trial-distribution", "geometric", "--grid", "lr=0.5,1")

RECIPES = {
    "tiny": Recipe(
        name="tiny", data="digits", model="linear", encoder="L2()", noise="Gaussian()", batch=300, lr=1.0, steps=5,
        epsilon=3.0, chunk=512, evaluations=1,
    ).to_toml(),
    "real": Recipe(
        name="real", task="regression", data="diabetes", target_bounds=(0, 400), model="linear", encoder="L2()",
        noise="Gaussian()", batch=300, lr=0.8, steps=5, epsilon=1.0, chunk=512, evaluations=1,
    ).to_toml(),
}  # fmt: skip

COMMANDS: dict[str, tuple[str, ...]] = {
    "account": ("account", *_COSTS),
    "account, truncated": ("account", *_COSTS, "--max-batch", "9", "--examples", "10", "--delta", "1e-2"),
    "account, search": ("account", *_COSTS, "--trials", "3"),
    "calibrate": ("calibrate", *_WHICH, "--noise", "Gaussian()", "--steps", "5", "--epsilon", "2"),
    "calibrate, search": ("calibrate", *_WHICH, "--noise", "Gaussian()", "--epsilon", "2", "--trials", "3"),
    "compare": ("compare", "--epsilon", "1", "--dim", "10", "--noises", "Gaussian()", "--noises", "Laplace()"),
    "check": ("check", "nets_of_the_freeze:fine"),
    "check, refused": ("check", "nets_of_the_freeze:mixed"),
    "audit": ("audit", *_WHICH, "--noise", "Gaussian(scale=1.0)", "--steps", "60", "--seed", "1"),
    "audit, one run": ("audit", "--one-run", "tiny.toml", "--canaries", "20", "--seed", "1"),
    "train": ("train", "tiny.toml", "--seed", "1"),
    "train, numbers": ("train", "real.toml", "--seed", "1", "--unsafe-show-private-metrics"),
    "show": ("show", _TRAINED),
    "show, statement": ("show", _TRAINED, "--statement"),
    "show, numbers": ("show", _REAL),
    "predict": ("predict", _TRAINED, "digits"),
    "predict, numbers": ("predict", _REAL, "diabetes"),
    "account, ledger": ("account", "--ledger", f"{_TRAINED}/ledger.jsonl"),
    "report": ("report", _TRAINED, "--yaml", "draft.yaml", "--markdown", "card.md"),
    "resume": ("resume", "runs/tiny-0002"),
    "tune": ("tune", "tiny.toml", "--epsilon", "3", *_SEARCH, "--seed", "8"),
    "report, index": ("report", "runs"),
    "data fetch": ("data", "fetch", "PUBLISHED", "--data-root", "fetched"),
}
"""In this order, each with --json, in one folder that has the recipes, a module of models, and a published data set."""

CALLS: dict[str, Callable[[], object]] = {
    "profiles": lambda: PaperGaussian(n=2).build(3),
    "means": lambda: private_means(
        torch.ones(9, 2), torch.zeros(2), torch.ones(2), plan_means(2, epsilon=1.0, delta=1e-3), seed=1
    ),
}
"""What draws besides the commands."""

run_command = main
"""The command line, which reads `sys.argv` and raises `SystemExit`."""

INTERRUPTED = {"resume": ("train", "tiny.toml", "--seed", "1")}
"""What runs before a command, and is stopped on the way."""
STOPPED = 1
"""The exit status of what was stopped."""

FOLDERS = {"train": "run", "train, numbers": "run", "tune": "search"}
"""Commands whose folder is frozen, and the key in what they print that names it."""


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C comes at the third release of a run."""
    real, calls = private_run.release, []

    def stopped(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_run, "release", stopped)
        yield


def published(root: Path) -> Any:
    """A published data set whose files are in `root` already; it is known by its name while somebody holds it."""
    source, contents, *_ = idx_set()
    (root / source.folder).mkdir(parents=True)
    for name, content in contents.items():
        (root / source.folder / name).write_bytes(content)
    return source
