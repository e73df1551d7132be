"""Random words of every stream, what is drawn with them, and releases of fixed sums.

All of it is whole numbers: words, indices, cells of the public grids that sums and releases lie on. Where the last bit
of a float depends on the processor, its cell does not, but for once in a hundred million numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden import names

__all__ = ["PURPOSES", "asked", "by_kernel", "computed", "kernel_set_to"]

PURPOSES = (
    "canaries", "canary", "coins", "dropout 0", "noise", "profiles", "sampling", "search", "simulation", "ties",
)  # fmt: skip
"""Of all generators that the library makes."""
_SECRET = bytes(range(32))


def _whole(values: Tensor) -> list[int]:
    """Numbers that must be whole ones, as such."""
    found = [int(value) for value in values.tolist()]
    assert found == values.tolist(), "a number beside the grid"
    return found


def _rows(count: int, dim: int, seed: int) -> Tensor:
    """Gradients that 32 bits hold exactly: multiples of 2**-10 within +-8, and a few of them ten times as large."""
    drawn = names.Generator(seed, purpose="rows of the freeze").random_words(count * dim) >> np.uint64(47)
    rows = torch.from_numpy((drawn.astype(np.float32) - 2**16) / 2**13).view(count, dim)
    rows[:, ::7] *= 10
    return rows


@contextmanager
def asked() -> Iterator[set[str]]:
    """The purposes of all generators that are made in the block."""
    found: set[str] = set()
    made = names.Generator.__init__

    def noted(self: Any, seed: Any = None, *, purpose: str = "noise", secret: Any = None) -> None:
        found.add(purpose)
        made(self, seed, purpose=purpose, secret=secret)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names.Generator, "__init__", noted)
        yield found


def _words() -> dict[str, list[str]]:
    """The first words of every stream, from a seed and from a secret."""
    found = {}
    for purpose in PURPOSES:
        streams = names.Generator(7, purpose=purpose), names.Generator(purpose=purpose, secret=_SECRET)
        found[purpose] = [f"{word:016x}" for stream in streams for word in stream.random_words(3).tolist()]
    return found


def _draws() -> dict[str, Any]:
    """What is made of the words, one after another: floats, decisions, batches, units, and numbers of runs."""

    def stream() -> Any:
        return names.Generator(3, purpose="noise")

    signs, magnitudes = stream().signed_uniforms(6)
    mixed = stream()
    found: dict[str, Any] = {
        "uniforms": [value.hex() for value in stream().uniforms(6).tolist()],
        "deep": [value.hex() for value in stream().uniforms_128(6).tolist()],
        "signed": [value.hex() for value in (signs * magnitudes).tolist()],
        "decisions": [
            "".join(str(int(one)) for one in stream().bernoulli(60, chance)) for chance in (0.3, 2.0**-70, 1.0)
        ],
        "one after another": [f"{int(mixed.random_words(count)[-1]):016x}" for count in (1, 2, 200_000, 1)],
        "batches": names.batches(examples=60, rate=0.2, count=4, seed=5),
        "batches, truncated": names.batches(examples=60, rate=0.2, count=4, seed=5, largest=8),
        "units": names.of_units([0, 0, 0, 1, 2, 2, 2, 2, 3], per_unit=2, drawn=np.array([0, 2, 3]), seed=5),
    }
    for label, law in names.TRIALS.items():
        generator = names.Generator(11, purpose="search")
        found[f"trials, {label}"] = [law(6.0).draw(generator) for _ in range(12)]
    return found


def _released() -> dict[str, list[int]]:
    """Releases of a fixed sum: of every noise, and for every encoder with Gaussian noise."""
    found = {}
    total = torch.arange(-20, 20) * 12_345_678
    for label, noise in names.NOISES.items():
        planned = names.mechanism(names.ENCODERS["ranked-half-normal-2"], noise, 0.1, 1)
        found[label] = _whole(names.released_cells(planned, total, seed=9))
    for label, encoder in names.ENCODERS.items():
        planned = names.mechanism(encoder, names.NOISES["gaussian"].replace(scale=0.37), 0.1, 1)
        found[f"gaussian for {label}"] = _whole(names.released_cells(planned, total, seed=9))[:12]
    long = names.ENCODERS["ranked-half-normal-2"].replace(dim=70_000)
    planned = names.mechanism(long, names.NOISES["laplace"], 0.1, 1)
    cells = _whole(names.released_cells(planned, torch.zeros(70_000), seed=9))
    found["many coordinates"] = [cells[0], *cells[16_382:16_386], *cells[65_534:65_538], sum(cells)]
    return found


def _encoded(rows: Tensor) -> dict[str, list[int]]:
    return {label: _whole(names.encoded_total(one, rows)) for label, one in names.ENCODERS.items()}


def _trained() -> dict[str, list[list[int]]]:
    """What seeded runs write into `grad`, times the expected batch: sample, encode, sum, release, for three steps."""
    noise, rows = names.NOISES["gaussian"], _rows(64, 12, seed=2)
    l2, ranked = names.ENCODERS["l2"].replace(dim=12), names.ENCODERS["ranked-half-normal-2"].replace(dim=12)
    few, many = {"rate": 0.25, "steps": 3}, {"rate": 0.5, "steps": 3}
    plans: dict[str, tuple[Any, Callable[[], Any]]] = {
        "l2": (names.mechanism(l2, noise, **few), lambda: None),
        "ranked": (names.mechanism(ranked, names.NOISES["student-9"], **few), lambda: None),
        "truncated": (names.mechanism(ranked, noise, **few, largest=12, population=64), lambda: None),
        "micro-batches": (names.mechanism(ranked.replace(micro_batch=2), noise, **few), lambda: None),
        "units": (names.mechanism(ranked, noise, **many, unit=True), lambda: [number // 4 for number in range(64)]),
    }
    found = {}
    for label, (planned, units) in plans.items():
        size = planned.rate * (16 if units() else 64)
        steps = names.gradients(rows, planned, 3, seed=4, units=units())
        found[label] = [_whole(grad * size / planned.grid.release_quantum) for grad in steps]
    return found


def computed() -> dict[str, Any]:
    """What is the same whether the native kernel runs or not: it takes no gradients of 64 bits."""
    return {
        "words": _words(),
        "draws": _draws(),
        "released": _released(),
        "encoded": _encoded(_rows(24, 40, seed=1).double()),
        "trained": _trained(),
    }


def by_kernel() -> dict[str, Any]:
    """Sums of encoded gradients of 32 bits, which the kernel ranks by buckets."""
    return {"encoded by the kernel": _encoded(_rows(24, 40, seed=1))}


@contextmanager
def kernel_set_to(variant: str) -> Iterator[None]:
    """A variant of the native kernel by its name, or "off"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(names.KERNEL, variant)
        yield
