"""Pictures through a map by several threads: in order, the same for any number of them, and torch as it was before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from noisette.app.features._parallel import run_parallel


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_in_order_whoever_is_first(threads: int) -> None:
    def later_ones_first(x: Tensor) -> Tensor:
        time.sleep(0.02 if int(x[0]) % 4 == 0 else 0)
        return x

    told: list[tuple[int, int]] = []
    found = torch.cat(list(run_parallel(later_ones_first, torch.arange(21), lambda *n: told.append(n), batch=2)))
    assert torch.equal(found, torch.arange(21))
    assert told == [(min(n, 21), 21) for n in range(2, 23, 2)]
    assert torch.get_num_threads() == threads


def test_each_computes_alone_without_gradients_and_all_take_part(threads: int) -> None:
    seen: set[tuple[str, int, bool]] = set()

    def noted(x: Tensor) -> Tensor:
        time.sleep(0.01)
        seen.add((threading.current_thread().name, torch.get_num_threads(), torch.is_grad_enabled()))
        return x

    list(run_parallel(noted, torch.arange(30), batch=1))
    assert len(seen) == threads
    assert {(many, gradients) for _, many, gradients in seen} == {(1, False)}


def test_no_more_is_computed_than_is_used_soon(threads: int) -> None:
    done: list[int] = []

    def noted(x: Tensor) -> Tensor:
        done.append(int(x[0]))
        return x

    found = run_parallel(noted, torch.arange(100), batch=1)
    next(found)
    time.sleep(0.05)
    found.close()
    assert len(done) <= 2 * threads
    assert torch.get_num_threads() == threads


def test_an_error_arrives_and_torch_is_as_it_was(threads: int) -> None:
    def fails(x: Tensor) -> Tensor:
        if int(x[0]) == 3:
            raise ValueError("the third")
        return x

    with pytest.raises(ValueError, match="the third"):
        list(run_parallel(fails, torch.arange(9), batch=1))
    assert torch.get_num_threads() == threads
    # threads that are new have the number of before, too
    numbers: list[int] = []
    other = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert numbers == [threads]


def test_no_pictures() -> None:
    assert list(run_parallel(lambda x: x, torch.empty(0, 3))) == []
