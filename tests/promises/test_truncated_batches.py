"""Batches that are cut: never too large, whoever is left out is chosen at random, and memory is known beforehand."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import Generator, Mechanism, Poisson, guarantee, make_private, plan
from noisette._gradients.chunk_policy import Plan
from noisette._pytree import Batch
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.training import PoissonSampler
from tests.support.children import together
from tests.support.helpers import refused
from tests.support.poisson_test import LEVEL
from tests.support.tiny_run import examples, flat, network

LOSS = nn.CrossEntropyLoss()


def test_a_cut_batch_has_just_as_many_and_nobody_is_always_left_out() -> None:
    """30 examples, half of them drawn, 12 kept. Chi-square over who is kept, and over pairs, at level 1e-6."""
    cut, free = (PoissonSampler(30, 0.5, Generator(1), most) for most in (12, None))
    draws = [cut.draw() for _ in range(4000)]
    sizes = np.array([len(index) for index in draws])
    assert sizes.max() == 12
    assert abs((sizes == 12).mean() - stats.binom.sf(11, 30, 0.5)) < 5 * 0.5 / np.sqrt(4000)
    assert all(np.all(np.diff(index) > 0) for index in draws)
    full = [index for index in draws if len(index) == 12]
    member = np.zeros((len(full), 30))
    for row, index in zip(member, full, strict=True):
        row[index] = 1
    counts = member.sum(axis=0)
    # draws without replacement: the spread of counts is 29/30 of that of a chi-square
    spread = float(((counts - counts.mean()) ** 2 / (len(full) * 0.4 * 0.6)).sum()) * 29 / 30
    assert 2 * min(stats.chi2.cdf(spread, 29), stats.chi2.sf(spread, 29)) > LEVEL
    pairs = (member.T @ member)[np.triu_indices(30, 1)]
    chance = 12 * 11 / (30 * 29)
    p = 2 * np.minimum(stats.binom.cdf(pairs, len(full), chance), stats.binom.sf(pairs - 1, len(full), chance))
    assert p.min() * len(pairs) > LEVEL
    assert max(len(free.draw()) for _ in range(200)) > 18


def test_one_drawn_set_is_cut_to_others_each_time() -> None:
    """At rate 1 everybody is drawn, and each of the 6 of 8 that can be left stands as good a chance."""
    sampler = PoissonSampler(8, 1.0, Generator(2), most=6)
    found, counts = np.unique([sampler.draw() for _ in range(2800)], axis=0, return_counts=True)
    assert len(found) == 28
    assert stats.chisquare(counts).pvalue > LEVEL


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many examples whatever computes rows was given, each time."""
    found: list[int] = []
    honest = Plan.chunks

    def watched(self: Plan, batch: Batch, most: int, alike: int | None = None) -> Iterator[tuple[Batch, int]]:
        for part, wide in honest(self, batch, most, alike):
            found.append(wide)
            yield part, wide

    monkeypatch.setattr(Plan, "chunks", watched)
    return found


@pytest.mark.parametrize("units", [False, True])
def test_physical_batches_have_one_shape(units: bool, given: list[int]) -> None:
    """And the sums are those of batches in any shapes, under the same seed."""
    ids, most = (torch.arange(40) % 15, 9) if units else (None, 18)
    sums = []
    for cut in (most, 1000):
        sampling = Poisson(0.3, max_batch=cut, population=1000)
        run = make_private(
            network(),
            LOSS,
            examples(),
            Mechanism(L2(), Gaussian(1.0), sampling=sampling, steps=30),
            units=ids,
            chunk=16,
            seed=3,
        )
        sums.append([run._encode_batch_sum(run.mechanisms[0]).unsafe_values() for _ in range(30)])
        assert len(set(given)) == 1, "two examples, or none, are computed as all others are"
        given.clear()
    free = Mechanism(L2(), Gaussian(1.0), 0.3, 30)
    run = make_private(network(), LOSS, examples(), free, units=ids, chunk=16, seed=3)
    plain = [run._encode_batch_sum(run.mechanisms[0]).unsafe_values() for _ in range(30)]
    assert len(set(given)) > 2
    torch.testing.assert_close(torch.stack(sums[1]), torch.stack(plain), rtol=0, atol=1e-12)


def test_more_people_than_the_cut_was_accounted_for() -> None:
    mechanism = Mechanism(L2(), Gaussian(1.0), sampling=Poisson(0.3, max_batch=20, population=39), steps=2)
    with refused(InvalidInput, "accounted for 39 examples, and there are 40"):
        make_private(network(), LOSS, examples(), mechanism)
    for there in (40, 50):  # a public number may be rounded up
        make_private(
            network(), LOSS, examples(), mechanism.replace(sampling=Poisson(0.3, max_batch=20, population=there))
        ).step()


def test_a_plan_proposes_a_size_that_costs_next_to_nothing() -> None:
    budget: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "batch": 100, "steps": 50}
    found = plan(nn.Linear(4, 2), torch.zeros(2000, 4), cap=True, **budget)
    assert found.sampling.population == 2000
    assert found.sampling.max_batch is not None
    assert 140 < found.sampling.max_batch < 200
    free = Mechanism(found.encoder, found.noise, found.rate, found.steps)
    assert 1.995 < guarantee(found, 1e-5).epsilon <= 2.0
    assert guarantee(found, 1e-5).epsilon / guarantee(free, 1e-5).epsilon < 1.005
    assert plan(nn.Linear(4, 2), torch.zeros(2000, 4), **budget).sampling == Poisson(0.05)


def _peaks(steps: int) -> tuple[int, int]:
    """The most memory that a process has ever had, in kB: after steps with full batches, and after many others."""
    ctypes.CDLL(None).mallopt(-3, 1 << 20)  # what is freed goes back at once, so that the peak is of what is in use

    def peak(x: Tensor, rate: float, steps: int) -> int:
        mechanism = Mechanism(L2(), Gaussian(1.0), sampling=Poisson(rate, max_batch=20, population=120), steps=steps)
        run = make_private(nn.Linear(x.shape[1], 1), nn.MSELoss(), (x, x[:, :1]), mechanism, chunk=16)
        assert sum(1 for _ in run) == steps
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    torch.manual_seed(0)
    x = torch.randn(120, 40_000)
    peak(x[:, :4], 0.25, 10)  # code counts as memory from its first use
    return peak(x[:20], 1.0, steps), peak(x, 0.25, steps)


@pytest.mark.parametrize("steps", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_memory_never_exceeds_that_of_a_full_batch(steps: int, tmp_path: Path) -> None:
    """In a process of its own, up to one batch of 3.2 MB more or less that is read ahead while another is in use.

    Uncut batches, of 30 on average, reach 45 examples: 4 MB more in each of the two, every time. A system that takes
    pages away and gives them back may add as much now and then: one measurement of three has to be clear of that.
    """
    more = list[int]()
    while len(more) < 3 and (not more or min(more) > 3_200):
        ((full, ever),) = together(1, lambda process: _peaks(steps), tmp_path / str(len(more)), patience=1800)
        more.append(ever - full)
    assert min(more) <= 3_200


def test_what_others_do_is_refused_with_the_reason() -> None:
    x, y = examples()
    mechanism = Mechanism(L2(), Gaussian(1.0), 0.3, 2)
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    with refused(InvalidInput, "fixed size or from shuffled passes, they are another mechanism"):
        make_private(network(), LOSS, loader, mechanism)
    for name, value in {"batch_size": 4, "shuffle": True, "drop_last": True, "sampler": None}.items():
        with refused(InvalidInput, f"what {name}= asks for draws batches of its own"):
            make_private(network(), LOSS, (x, y), mechanism, **{name: value})  # type: ignore[arg-type]
        with refused(InvalidInput, "epsilon is not that of Poisson sampling"):
            plan(network(), (x, y), epsilon=1.0, delta=1e-3, batch=3, steps=1, **{name: value})
    with pytest.raises(TypeError):
        make_private(network(), LOSS, (x, y), mechanism, nonsense=1)  # type: ignore[call-arg]


def test_updates_are_over_the_expected_size_and_not_the_cut_one() -> None:
    model = network()
    run = make_private(
        model, LOSS, examples(), Mechanism(L2(), Gaussian(1.0), sampling=Poisson(1.0, 5, 40), steps=1), seed=1
    )
    released = run.step().values
    torch.testing.assert_close(flat(p.grad for p in model.parameters()), released / 40)
