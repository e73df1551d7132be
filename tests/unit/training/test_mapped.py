"""Arrays mapped into memory from files train as arrays in memory do, and stay on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from noisette import Mechanism, check, make_private, plan
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import refused
from tests.support.tiny_run import examples, flat, gaussian, network

WAYS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "as it is": lambda rows: rows,
    "a view": lambda rows: rows[:],
    "without its class": np.asarray,
}


def mapped(path: Path, values: Tensor, mode: Any = "r") -> npt.NDArray[Any]:
    np.save(path, values.numpy())
    found: npt.NDArray[Any] = np.load(path, mmap_mode=mode)
    return found


def trained(data: Any) -> Tensor:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in make_private(model, nn.CrossEntropyLoss(), data, gaussian(), seed=0):
        optimizer.step()
    return flat(model.parameters())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["r", "c"])
def test_they_train_as_arrays_in_memory_do(way: str, mode: str, tmp_path: Path) -> None:
    """In single precision too, which the model turns into its own."""
    x, y = examples()
    expected = trained((x, y))
    rows = WAYS[way](mapped(tmp_path / "x.npy", x, mode))
    assert torch.equal(trained((rows, y)), expected)
    assert torch.equal(trained((rows, mapped(tmp_path / "y.npy", y))), expected)
    short = x.float()
    assert torch.equal(trained((mapped(tmp_path / "s.npy", short), y)), trained((short.numpy(), y)))


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_not_drawn_is_not_read(kind: type, tmp_path: Path) -> None:
    count, width = 50_000, 1024  # 200 MB or 400 MB
    rows = np.memmap(tmp_path / "rows", dtype=kind, mode="w+", shape=(count, width))
    rows = np.memmap(tmp_path / "rows", dtype=kind, mode="r", shape=(count, width))
    model, y = nn.Linear(width, 2), torch.zeros(count, dtype=torch.long)

    def planned(data: Any) -> Mechanism:
        return plan(model, data, epsilon=1.0, delta=1e-6, batch=8, steps=2)

    def step(data: Any, mechanism: Mechanism) -> int:
        assert check(model, data).passed
        make_private(model, nn.CrossEntropyLoss(), data, mechanism).step()
        return resident()

    # with all that is imported, and kept for an accounting, on the way
    before = step((rows[:20], y[:20]), planned((torch.empty(rows.shape, device="meta"), y)))
    assert step((rows, y), planned((rows, y))) - before < 50e6


def test_dicts_and_arrays_alone(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x.npy", torch.randn(20, 3))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=2)

    def alone(model: nn.Module, batch: Any) -> Tensor:
        rows: Tensor = batch["x"] if isinstance(batch, dict) else batch
        assert rows.dtype == torch.float32
        return (model(rows) ** 2).sum(1)

    for data in (x, {"x": x, "none": None}, {"x": x, "weights": list(range(20))}):
        assert make_private(nn.Linear(3, 2), alone, data, mechanism).step() is not None


def test_what_does_not_fit_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    x = mapped(tmp_path / "x.npy", torch.randn(20, 3))
    texts = np.memmap(tmp_path / "texts", dtype="S4", mode="w+", shape=(20,))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=2)
    for data, said in (((x, torch.zeros(19)), "20 rows and"), ((x, texts), "are not numbers")):
        with refused(InvalidInput, match=said):
            make_private(nn.Linear(3, 2), nn.MSELoss(), data, mechanism)
