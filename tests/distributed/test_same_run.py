"""Any number of processes make the same sums, the same batches and the same model, and noise once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import Dataset

from noisette import Generator, Mechanism, Private, make_private
from noisette.accounting import Ledger, guarantee
from noisette.denoisers import KS, Identity, Kalman
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, Laplace
from noisette.training import PrivateRun, Processes, Trainer, process_group
from noisette.training._rank_slice import RankSlice
from tests.conformance.statistics import ks_rejects
from tests.support.child_record import ONE_HOT, average_the_noise, one_hot_run, plant_before, sum_the_noise, watch
from tests.support.children import Children, together
from tests.support.helpers import assert_well_formed, refused
from tests.support.poisson_test import sampling_faults
from tests.support.tiny_run import DIM, examples, flat, gaussian, network, trainer_of

STEPS = 10
LOSS = nn.CrossEntropyLoss()
MECHANISMS = {
    "L2": Mechanism(L2(dim=DIM, radius=0.5), Gaussian(scale=0.8), 0.05, STEPS),  # a process often has nothing to add
    "Ranked": Mechanism(Ranked(dim=DIM), Laplace(scale=0.5), 0.3, STEPS),
    "micro-batches": Mechanism(L2(dim=DIM, radius=0.05, micro_batch=2), Gaussian(scale=1.0), 0.5, STEPS),
}


def _trained(process: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Private sums of 10 steps of each mechanism, and the model that they lead to when applied without noise."""
    sums, _ = watch(noise=False)
    found = {}
    for name, mechanism in MECHANISMS.items():
        sums.clear()
        denoiser = (
            Kalman(gain=0.7) if name == "Ranked" else Identity()
        )  # looks ahead, so it moves weights back and forth
        trainer = trainer_of(mechanism, seed=5, chunk=2, lr=0.05, denoiser=denoiser)
        list(trainer.run())
        found[name] = torch.stack(sums), flat(trainer.model.parameters())
    return found


def test_one_two_and_three_processes_make_the_same_sums_and_the_same_model(tmp_path: Path) -> None:
    (alone,) = together(1, _trained, tmp_path / "1")
    assert all(sums.count_nonzero() > 0 for sums, _ in alone.values())
    for size in (2, 3):
        for found in together(size, _trained, tmp_path / str(size)):
            torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-12)


def _from_shards(cuts: list[int]) -> Callable[[int], Any]:
    def work(process: int) -> Any:
        sums, _ = watch(noise=False)
        x, y = examples()
        part = slice(cuts[process], cuts[process + 1])
        private = make_private(network(), LOSS, (x[part], y[part]), gaussian(20), seed=5, sharded=True)
        list(private)
        return torch.stack(sums), private.guarantee(1e-3).epsilon

    return work


def test_examples_that_are_split_already(tmp_path: Path) -> None:
    """Uneven parts, and one without any example."""

    def whole(process: int) -> Any:
        sums, _ = watch(noise=False)
        private = make_private(network(), LOSS, examples(), gaussian(20), seed=5)
        list(private)
        return torch.stack(sums), private.guarantee(1e-3).epsilon

    guarantee(gaussian(20), 1e-3)  # computed here once, and known to whoever is forked
    ((expected, epsilon),) = together(1, whole, tmp_path / "whole")
    for cuts in ([0, 40], [0, 5, 40], [0, 20, 20, 40]):
        for sums, found in together(len(cuts) - 1, _from_shards(cuts), tmp_path / str(cuts)):
            torch.testing.assert_close(sums, expected, rtol=1e-9, atol=1e-12)
            assert found == epsilon


class Table(Dataset):
    """The tiny examples, read one by one, in the order of `order`; `noise` changes them at every look."""

    def __init__(self, order: list[int] | None = None, noise: float = 0.0) -> None:
        self.order, self.noise, self.reads = order or list(range(40)), noise, list[int]()

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, number: int) -> Any:
        self.reads.append(number)
        x, y = (part[self.order[number]] for part in examples())
        return x + self.noise * torch.randn(3).double(), y


@pytest.mark.parametrize("workers", [0, 1])
def test_every_process_reads_its_own_share_of_a_data_set(workers: int, tmp_path: Path) -> None:
    def work(process: int) -> Any:
        sums, _ = watch(noise=False)
        data = Table()
        private = make_private(network(), LOSS, data, gaussian(6, rate=0.5), seed=5, workers=workers)
        data.reads.clear()
        list(private)
        return torch.stack(sums), data.reads

    ((expected, all_reads),) = together(1, work, tmp_path / "1")
    found = together(2, work, tmp_path / "2")
    for sums, _ in found:
        torch.testing.assert_close(sums, expected, rtol=1e-9, atol=1e-12)
    assert sorted(found[0][1] + found[1][1]) == sorted(all_reads), "and nobody reads what another one has"
    if not workers:
        assert len(all_reads) > 60
        assert abs(len(found[0][1]) - len(found[1][1])) <= 6


def test_data_sets_in_another_order_are_refused_and_changing_ones_are_not(tmp_path: Path) -> None:
    def other_order(process: int) -> None:
        make_private(network(), LOSS, Table([*range(process, 40), *range(process)]), gaussian())

    for told in _refusals(2, other_order, tmp_path / "order"):
        assert "process 1 has other examples than process 0" in told

    def changing(process: int) -> int:
        torch.manual_seed(process)
        private = make_private(network(), LOSS, Table(noise=0.1), gaussian(2))
        return len(list(private))

    assert together(2, changing, tmp_path / "noise") == [2, 2]


def test_more_processes_than_examples(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        sums, _ = watch(noise=False)
        private = make_private(network(), LOSS, examples(count=2), gaussian(5, rate=1.0), seed=5)
        list(private)
        return torch.stack(sums)

    expected = together(1, work, tmp_path / "1")[0]
    for sums in together(3, work, tmp_path / "3"):
        torch.testing.assert_close(sums, expected, rtol=1e-9, atol=1e-12)


def test_a_batch_is_cut_into_parts_that_meet_nowhere() -> None:
    index = np.flatnonzero(np.random.default_rng(0).random(100) < 0.3)
    for size in (1, 2, 3, 50):
        parts = [RankSlice(100, Processes(process, size)).local(index) for process in range(size)]
        assert np.concatenate(parts).tolist() == index.tolist()
        assert max(map(len, parts)) - min(map(len, parts)) <= 1, "no process has to wait for a longer part"
        groups = np.random.default_rng(1).integers(7, size=len(index))
        cut = [RankSlice(100, Processes(process, size)).of_groups(index, groups) for process in range(size)]
        assert sorted(np.concatenate([mine for mine, _ in cut])) == index.tolist()
        assert sum(len(np.unique(drawn)) for _, drawn in cut) == len(np.unique(groups)), "no group is cut"


# -- noise, once -------------------------------------------------------------------------------------------------------


def _residuals(fault: Callable[[], None] | None = None) -> Callable[[int], Any]:
    def work(process: int) -> Any:
        if fault is not None:
            fault()
        sums, releases = watch()
        trainer = trainer_of(MECHANISMS["Ranked"].replace(steps=160), seed=7, lr=0.01, denoiser=KS())
        list(trainer.run())
        return (torch.stack(releases) - torch.stack(sums)).numpy(), flat(trainer.model.parameters())

    return work


def _other_law(noise: np.ndarray) -> bool:
    """KS of 45,280 residuals at level 1e-6, and whether any of them comes twice."""
    law = MECHANISMS["Ranked"].noise
    return ks_rejects(law, noise.ravel()) or len(np.unique(noise)) < noise.size


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_noise_is_the_declared_law_once_and_the_same_everywhere(size: int, tmp_path: Path) -> None:
    found = together(size, _residuals(), tmp_path / "honest")
    assert not _other_law(found[0][0])
    for noise, theta in found[1:]:
        assert np.array_equal(noise, found[0][0])
        assert torch.equal(theta, found[0][1]), "denoiser and optimizer are at the same place, bit by bit"


@pytest.mark.parametrize(
    ("size", "fault"),
    [(2, sum_the_noise), pytest.param(3, sum_the_noise, marks=pytest.mark.slow), (2, average_the_noise)],
)
def test_noise_on_every_process_is_seen(size: int, fault: Callable[[], None], tmp_path: Path) -> None:
    assert _other_law(together(size, _residuals(fault), tmp_path / "fault")[0][0])


def test_without_a_seed_processes_agree_and_runs_differ(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        torch.manual_seed(0)  # has no part in it
        sums, releases = watch()
        list(trainer_of(gaussian(3)).run())
        return torch.stack(sums), torch.stack(releases)

    runs = [together(2, work, tmp_path / name) for name in "ab"]
    for processes in runs:
        for first, second in zip(*processes, strict=True):
            assert torch.equal(first, second)
    for kind, most in ((0, 0.5), (1, 0.05)):  # batches and weights differ; cells coincide now and then, noise does not
        same = runs[0][0][kind] == runs[1][0][kind]
        assert float((same & (runs[0][0][kind] != 0)).double().mean()) < most


def test_the_model_of_process_0_is_everybody_s(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        torch.manual_seed(process)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)).to(memory_format=torch.channels_last)
        before = flat(model.parameters())
        dim = before.numel()
        mechanism = gaussian().replace(encoder=L2(dim=dim))
        make_private(model, LOSS, (torch.ones(30, 1, 4, 4), torch.zeros(30, dtype=torch.long)), mechanism)
        return before, flat(model.parameters())

    (first, kept), (second, copied) = together(2, work, tmp_path / "two")
    assert not torch.equal(first, second)
    assert torch.equal(first, kept)
    assert torch.equal(kept, copied)


# -- P6 on the union of processes --------------------------------------------------------------------------------------


def _batches(steps: int, sharded: bool = False, fault: Callable[[], None] | None = None) -> Callable[[int], Any]:
    def work(process: int) -> Any:
        if fault is not None:
            fault()
        sums, _ = watch(noise=False)
        if sharded:
            start, stop = (0, 7) if process == 0 else (7, ONE_HOT)
            x = torch.eye(ONE_HOT, dtype=torch.float64)[start:stop]
            mechanism = Mechanism(L2(dim=ONE_HOT), Gaussian(scale=1.0), 0.1, steps)
            model = nn.Linear(ONE_HOT, 1, bias=False).double()
            list(make_private(model, lambda out, y: out.sum(), (x, x[:, 0]), mechanism, seed=3, sharded=True))
        else:
            list(one_hot_run(steps=steps, seed=3))
        return torch.stack(sums).round().long().numpy()

    return work


def _union_faults(counts: np.ndarray) -> list[str]:
    return sampling_faults([np.repeat(np.arange(ONE_HOT), row) for row in counts], ONE_HOT, 0.1)


@pytest.mark.parametrize(("size", "sharded"), [(2, False), (2, True)])
def test_the_union_of_processes_is_poisson(size: int, sharded: bool, tmp_path: Path) -> None:
    counts = together(size, _batches(400, sharded), tmp_path / "run")[0]
    assert counts.max() == 1
    assert _union_faults(counts) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_the_union_of_processes_is_poisson_over_20000_steps(size: int, tmp_path: Path) -> None:
    assert _union_faults(together(size, _batches(20_000), tmp_path / "run", patience=1800)[0]) == []


def _everybody_takes_all() -> None:
    RankSlice.local = lambda self, index: index  # type: ignore[method-assign]


def _everybody_draws_alone() -> None:
    """Each process draws a batch of its own and takes its part of that: examples at the cut come twice or never."""

    def alone(sampler: Any, examples: int, rate: float, generator: Generator, *most: Any) -> Any:
        if not hasattr(generator, "own"):
            generator.own = Generator(dist.get_rank(), purpose="sampling")  # type: ignore[attr-defined]
        return sampler(examples, rate, generator.own, *most)  # type: ignore[attr-defined]

    plant_before("PoissonSampler", alone)


@pytest.mark.parametrize("fault", [_everybody_takes_all, _everybody_draws_alone])
def test_other_unions_are_seen(fault: Callable[[], None], tmp_path: Path) -> None:
    assert _union_faults(together(2, _batches(300, fault=fault), tmp_path / "run")[0])


# -- what processes must agree on --------------------------------------------------------------------------------------


def _refusals(size: int, work: Callable[[int], Any], folder: Path) -> list[str]:
    children = Children(size, work, folder)
    assert 0 not in children.wait()
    errors = [children.outcome(process) for process in range(size)]
    for process, error in enumerate(errors):
        assert isinstance(error, InvalidInput), children.trace(process)
        assert_well_formed(error)
    return [error.sentence for error in errors]


DIFFERENT: dict[str, Callable[[int], dict[str, Any]]] = {
    "another seed": lambda process: {"seed": process},
    "another mechanism": lambda process: {"mechanism": gaussian(5 + process)},
    "another denoiser": lambda process: {"denoiser": KS() if process else Identity()},
    "other examples": lambda process: {"order": process},
    "process 1 has other examples": lambda process: {"count": 40 - process},
    "processes 0 and 1 have the same examples": lambda process: {"sharded": True},
    "a micro-batch may have examples": lambda process: {"sharded": True, "order": process, "micro": 2},
    "the data set is empty": lambda process: {"count": 0},
}
"""What processes are refused for, in these words, and the options that lead to it."""


def test_processes_that_differ_are_refused(tmp_path: Path) -> None:
    """All in one pair of processes: a refusal leaves both where they can go on together."""

    def work(process: int) -> None:
        for sentence, options in DIFFERENT.items():
            given = options(process)
            x, y = examples(seed=given.pop("order", 0), count=given.pop("count", 40))
            mechanism = given.pop("mechanism", gaussian())
            if micro := given.pop("micro", 0):
                mechanism = mechanism.replace(encoder=L2(dim=DIM, micro_batch=micro))
            with refused(InvalidInput, match=sentence):
                make_private(network(), LOSS, (x, y), mechanism, **given)

    together(2, work, tmp_path / "run")


def test_weights_that_part_are_seen_at_the_next_payment(tmp_path: Path) -> None:
    def work(process: int) -> None:
        trainer = trainer_of(gaussian(5))
        for progress in trainer.run():
            if process == 1 and progress.updates == 2:
                trainer.model[0].weight.data[0, 0] += 1e-9  # type: ignore[index]

    for told in _refusals(2, work, tmp_path / "run"):
        assert told == "process 1 has other weights after 2 updates than process 0 after 2."


def test_noise_that_differs_between_processes_is_seen(tmp_path: Path) -> None:
    """What a fork of one process, or a secret that was not shared, would lead to."""

    def work(process: int) -> None:
        plant_before("Generator", lambda generator, *_, purpose, **__: generator(purpose=purpose))
        list(trainer_of(gaussian(5)).run())

    assert "has other" in _refusals(2, work, tmp_path / "run")[0]


def test_a_checkpoint_that_one_process_cannot_see(tmp_path: Path) -> None:
    def first(process: int) -> None:
        trainer = trainer_of(gaussian(5), ledger=tmp_path / "ledger.jsonl" if process == 0 else None)
        for _ in trainer.run():
            if trainer.private.num_updates == 3:
                break
        trainer.save(tmp_path / f"checkpoint-{process}.pt")

    together(2, first, tmp_path / "first")
    assert (tmp_path / "checkpoint-0.pt").exists()
    assert not (tmp_path / "checkpoint-1.pt").exists(), "only process 0 writes"

    def second(process: int) -> None:
        trainer = trainer_of(gaussian(5), ledger=tmp_path / "ledger.jsonl" if process == 0 else None)
        if process == 0:
            trainer.load(tmp_path / "checkpoint-0.pt")
        list(trainer.run())

    assert _refusals(2, second, tmp_path / "second")[0].startswith("process 1 has other weights after 0 updates")


def test_a_ledger_is_process_0_s(tmp_path: Path) -> None:
    def work(process: int) -> int:
        ledger = tmp_path / "ledger.jsonl" if process == 0 else None
        trainer = trainer_of(gaussian(5), ledger=ledger)
        list(trainer.run())
        assert trainer.private.steps_paid == 5
        return trainer.private.steps_remaining

    assert together(2, work, tmp_path / "run") == [0, 0]
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        assert ledger.spent(gaussian()) == 5

    def spent(process: int) -> int:
        return trainer_of(
            gaussian(5), ledger=tmp_path / "ledger.jsonl" if process == 0 else None
        ).private.steps_remaining

    assert together(2, spent, tmp_path / "again") == [0, 0], "process 1 knows what process 0's ledger says"

    def both(process: int) -> None:
        with (
            Ledger(tmp_path / f"{process}.jsonl", data="tiny") as ledger,
            refused(InvalidInput, match="given a ledger"),
        ):
            if process == 1:
                make_private(network(), LOSS, examples(), gaussian(), ledger=ledger)
            else:
                raise InvalidInput("process 0 was not given a ledger.", hint="none")

    together(2, both, tmp_path / "both")


# -- joining -----------------------------------------------------------------------------------------------------------


def test_processes_that_have_not_joined_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would train alone on the same people, and spend for itself."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(InvalidInput, match="2 processes were started, and they have not joined"):
        trainer_of(gaussian())


def test_joining(tmp_path: Path) -> None:
    with process_group() as processes:
        assert (processes, processes.is_main) == (Processes(0, 1), True)

    def work(process: int) -> tuple[int, int]:
        with process_group() as processes:  # the group is there already
            pass
        assert dist.is_initialized()
        return processes.rank, processes.size

    assert together(2, work, tmp_path / "run") == [(0, 2), (1, 2)]


def test_processes_that_find_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with refused(InvalidInput, match="could not find each other"), process_group(timeout=0.5):
        pass


def test_alone_everything_is_the_identity() -> None:
    processes = Processes()
    assert processes.broadcast_bytes(b"abc") == b"abc"
    assert processes.all_gather([1, -2]) == [[1, -2]]
    processes.assert_same("", mechanism=1)
    processes.check_same_weights([], 0)
    private = _alone()
    assert Trainer(private, torch.optim.SGD(private.parameters)).model is private.model


def _alone() -> PrivateRun:
    return make_private(network(), LOSS, examples(), gaussian())


def test_bytes_and_numbers_travel(tmp_path: Path) -> None:
    def work(process: int) -> tuple[Any, ...]:
        processes = Processes.current()
        sent = [
            processes.broadcast_bytes(data if process == 0 else b"") for data in (b"", b"x", bytes(range(256)) * 1000)
        ]
        return *sent, processes.all_gather([process, -(2**62)])

    for found in together(3, work, tmp_path / "run"):
        assert found == (b"", b"x", bytes(range(256)) * 1000, [[k, -(2**62)] for k in range(3)])


def test_a_sum_of_parts(tmp_path: Path) -> None:
    def work(process: int) -> Tensor:
        part = torch.full((3,), 10.0**process, dtype=torch.float64)
        total = Processes.current().all_reduce(Private(part)).unsafe_values()
        assert part.tolist() == [10.0**process] * 3, "the part is left as it is"
        return total

    for total in together(3, work, tmp_path / "run"):
        assert total.tolist() == [111.0] * 3
