"""Units on several processes: nobody's examples are on two of them, and the sums are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noisette import Mechanism, Poisson, make_private
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.conformance.encoder_checks import outside_image
from tests.support.child_record import watch
from tests.support.children import Children, together
from tests.support.helpers import assert_well_formed
from tests.support.tiny_run import DIM, network
from tests.unit.training.test_units import Coupled, population

LOSS = nn.CrossEntropyLoss()


def _sums(mechanism: Mechanism, size: int, *, coupled: bool = False) -> Callable[[int], Any]:
    """Sums of the steps on a population with a new unit of `size` examples, or without it where that is 0."""

    def work(process: int) -> Any:
        sums, _ = watch(noise=False)
        x, y, ids = population("dense", 1000, torch.float64)
        there = len(ids) - 1000 + size
        data = x[:there], y[:there]
        run = make_private(network(), LOSS, data, mechanism, units=ids[:there], per_unit=4, chunk=3, seed=5)
        if coupled:
            run._sampling = Coupled()  # type: ignore[assignment]
        list(run)
        return torch.stack(sums)

    return work


@pytest.mark.parametrize(
    "mechanism",
    [
        Mechanism(L2(dim=DIM, radius=0.5), Gaussian(scale=1.0), 0.4, 12),
        Mechanism(Ranked(dim=DIM), Gaussian(scale=1.0), sampling=Poisson(0.8, max_batch=4, population=7), steps=12),
    ],
    ids=["L2", "cut"],
)
def test_one_two_and_three_processes_make_the_same_sums(mechanism: Mechanism, tmp_path: Path) -> None:
    ((alone),) = together(1, _sums(mechanism, 20), tmp_path / "1")
    assert alone.count_nonzero() > 0
    for size in (2, 3):
        for sums in together(size, _sums(mechanism, 20), tmp_path / str(size)):
            torch.testing.assert_close(sums, alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_one_unit_moves_the_sum_by_at_most_the_image(processes: int, tmp_path: Path) -> None:
    """Of one, seven and a thousand examples, on every process alike."""
    mechanism = Mechanism(Ranked(dim=DIM), Gaussian(scale=1.0), 1.0, 1)
    without = together(processes, _sums(mechanism, 0, coupled=True), tmp_path / "0")[0]
    for size in (1, 7, 1000):
        for total in together(processes, _sums(mechanism, size, coupled=True), tmp_path / str(size)):
            moved = (total - without) / (1 + 1e-9)
            assert moved.abs().max() > 1e-3
            assert outside_image(torch.where(moved.abs() < 1e-10, 0.0, moved), mechanism.encoder.image) == []


def test_other_ids_in_another_process_are_refused(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        x, y, ids = population("dense", 7, torch.float64)
        ids[0] = f"u{process}"
        make_private(network(), LOSS, (x, y), Mechanism(L2(), Gaussian(1.0), 0.4, 2), units=ids)

    children = Children(2, work, tmp_path / "ids")
    assert children.wait() == [1, 1]
    for process in range(2):
        error = children.outcome(process)
        assert isinstance(error, InvalidInput), children.trace(process)
        assert_well_formed(error)
        assert "another units than process 0" in str(error)
