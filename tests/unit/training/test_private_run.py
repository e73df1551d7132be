"""Private gradients for any loop: budgets, several mechanisms, looking ahead, micro-batches, and input refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisette import Mechanism, Private, Released, guarantee, make_private
from noisette._gradients import PerExampleGradients
from noisette.accounting import Ledger
from noisette.denoisers import Identity, Kalman
from noisette.encoders import L2, Ranked
from noisette.errors import BudgetSpent, InvalidInput, LedgerError
from noisette.noise import Gaussian, Laplace
from noisette.training import PoissonSampler, PrivateRun, Trainer, accuracy, private_run
from tests.promises.test_ledger_files import CHANGES
from tests.support.helpers import refused
from tests.support.tiny_run import DIM, EXAMPLES, examples, flat, gaussian, network, trainer_of

LOSS = nn.CrossEntropyLoss()


def _private(mechanism: Any = None, **options: Any) -> tuple[nn.Module, PrivateRun]:
    model = network()
    return model, make_private(model, LOSS, examples(), mechanism or gaussian(), **options)


def test_an_own_loop(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        model, private = _private(ledger=ledger)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        seen = []
        for step in private:
            seen.append(step)
            assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
            before = flat(model.parameters())
            optimizer.step()
            assert not torch.equal(flat(model.parameters()), before)
        assert seen == [1, 2, 3, 4, 5]
        assert ledger.spent(gaussian()) == private.steps_paid == private.total == 5
    assert private.guarantee(1e-5) == guarantee(gaussian(), 1e-5)


def test_the_step_after_the_last_is_refused() -> None:
    _, private = _private(gaussian(2))
    list(private)
    with refused(BudgetSpent, match="all 2 steps of the mechanism are spent"):
        private.step()
    assert (private.num_updates, private.steps_paid, private.steps_remaining) == (2, 2, 0)
    assert list(private) == []


def test_no_more_is_paid_than_planned_when_paying_ahead(tmp_path: Path) -> None:
    """With 430 steps three are paid at a time, and 430 is no multiple of three."""
    mechanism = gaussian(430)
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        _, private = _private(mechanism, ledger=ledger)
        for updates in private:
            assert updates <= ledger.spent(mechanism) == private.steps_paid <= min(updates + 2, 430)
        assert ledger.spent(mechanism) == 430
    lines = (tmp_path / "ledger.jsonl").read_text().count("\n")
    assert lines == 1 + 1 + 144


def test_a_run_is_as_long_as_the_loops_over_it(tmp_path: Path) -> None:
    """Also one of several mechanisms, and one that goes on with what its ledger has left."""
    mechanisms = gaussian(3), gaussian(4, rate=0.1)
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        _, private = _private(mechanisms, ledger=ledger)
        assert len(private) == 7
        for _ in zip(range(2), private, strict=False):
            pass
        taken = private.num_updates
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        _, again = _private(mechanisms, ledger=ledger)
        assert len(again) == 7 - taken == len(list(again))
        assert len(again) == 0
        assert again


def test_the_guarantee_so_far_is_that_of_the_steps_paid() -> None:
    _, private = _private(gaussian(5))
    assert private.guarantee(1e-5).epsilon == 0
    private.step()
    assert private.guarantee(1e-5) == guarantee(gaussian(1), 1e-5)


def test_two_mechanisms_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = gaussian(2), Mechanism(Ranked(dim=DIM), Laplace(scale=2.0), rate=0.5, steps=3)
    used: list[Mechanism] = []
    release = private_run.release

    def watched(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        used.append(mechanism)
        return release(mechanism, total, **options)

    monkeypatch.setattr(private_run, "release", watched)
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        _, private = _private((first, second), ledger=ledger)
        assert private.total == 5
        list(private)
        assert used == [first] * 2 + [second] * 3
        assert ledger.mechanisms() == (first, second)
    assert private.guarantee(1e-5).epsilon == guarantee((first, second), 1e-5).epsilon


def test_a_mechanism_that_comes_twice_is_counted_once(tmp_path: Path) -> None:
    """After 12 of 20 steps the first ten are taken and two of the others, in this process and in the next one."""
    one, other = gaussian(10), gaussian(10).replace(noise=Gaussian(scale=2.0))
    for number, run in enumerate([(one, one), (one, other, one), (one, one, one)]):
        path = tmp_path / f"{number}.jsonl"
        with Ledger(path, data="tiny") as ledger:
            _, private = _private(run, ledger=ledger)
            for _ in range(12):
                private.step()
            paid = private.guarantee(1e-5)
        with Ledger(path) as ledger:
            _, again = _private(run, ledger=ledger)
            total = 10 * len(run)
            assert (again.steps_paid, again.steps_remaining, again.total) == (12, total - 12, total)
            assert again.guarantee(1e-5).epsilon == pytest.approx(paid.epsilon, rel=1e-3)
            assert len(list(again)) == total - 12
            assert (again.steps_remaining, sum(m.steps for m in ledger.mechanisms())) == (0, total)


def test_a_ledger_that_has_paid_for_more_than_the_run_leaves_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        ledger.spend(gaussian(5), 7)
        _, private = _private(gaussian(5), ledger=ledger)
        assert (private.steps_paid, private.steps_remaining, list(private)) == (7, 0, [])
        assert private.guarantee(1e-5).epsilon == guarantee(gaussian(7), 1e-5).epsilon
        with refused(BudgetSpent):
            private.step()


@pytest.mark.parametrize("change", CHANGES)
def test_a_ledger_that_changes_during_a_run_ends_it(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[int] = []
    honest = private_run.release

    def counted(*args: Any, **options: Any) -> Released:
        released.append(1)
        return honest(*args, **options)

    monkeypatch.setattr(private_run, "release", counted)
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, data="tiny") as ledger:
        _, private = _private(gaussian(20), ledger=ledger)
        for _ in range(5):
            private.step()
        CHANGES[change](path)
        for _ in range(2):
            with refused(LedgerError, match="so nothing was released"):
                private.step()
        assert len(released) == 5


def test_stamps_reach_the_guarantee_the_checkpoint_and_the_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", data="tiny") as ledger:
        _, private = _private(gaussian(5), ledger=ledger, seed=3)
        private.step()
        assert private.guarantee(1e-5).flags == ledger.flags == ("reproducible",)
        private.stamp("unsafe")
        private.step()
        assert private.guarantee(1e-5).flags == ledger.flags == ("reproducible", "unsafe")
        state = private.state_dict()
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        _, again = _private(gaussian(5), ledger=ledger)
        assert again.flags == ()
        again.load_state_dict(state)
        assert again.guarantee(1e-5).flags == ("reproducible", "unsafe")
        assert "not for release" in str(ledger.guarantee(1e-5))


def test_every_ledger_is_paid(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.jsonl", data="tiny") as a, Ledger(tmp_path / "b.jsonl", data="tiny") as b:
        b.spend(gaussian(), 4)  # by another run, which is no business of this one
        _, private = _private(ledger=[a, b])
        assert private.steps_paid == 0
        list(private)
        assert (a.spent(gaussian()), b.spent(gaussian())) == (5, 9)


# -- randomness --------------------------------------------------------------------------------------------------------


def _first_grad(**options: Any) -> torch.Tensor:
    model, private = _private(gaussian(1), **options)
    private.step()
    return flat(p.grad for p in model.parameters())


def test_noise_comes_from_the_system_unless_a_seed_is_given() -> None:
    torch.manual_seed(0)
    once = _first_grad()
    torch.manual_seed(0)
    assert not torch.equal(_first_grad(), once)
    assert torch.equal(_first_grad(seed=4), _first_grad(seed=4))
    assert not torch.equal(_first_grad(seed=4), _first_grad(seed=5))
    assert _private(seed=4)[1].reproducible
    assert not _private()[1].reproducible


# -- looking ahead -----------------------------------------------------------------------------------------------------


def test_gradients_are_taken_ahead_and_parameters_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    gain = 0.3
    trainer = trainer_of(gaussian(4), denoiser=Kalman(gain=gain), seed=0)
    model, ahead = trainer.model, []
    honest = PerExampleGradients.encoded_sum

    def watched(self: PerExampleGradients, *args: Any, **options: Any) -> Any:
        ahead.append(flat(model.parameters()))
        return honest(self, *args, **options)

    monkeypatch.setattr(PerExampleGradients, "encoded_sum", watched)
    before: list[torch.Tensor] = []
    after_release: list[torch.Tensor] = []
    release = private_run.release

    def released(*args: Any, **options: Any) -> Released:
        after_release.append(flat(model.parameters()))
        return release(*args, **options)

    monkeypatch.setattr(private_run, "release", released)
    thetas = [flat(model.parameters())]
    for _ in trainer.run():
        thetas.append(flat(model.parameters()))
    before = thetas[:-1]
    assert torch.equal(ahead[0], before[0]), "there is nothing to look back at yet"
    for k in range(1, 4):
        expected = before[k] + (1 - gain) / gain * (before[k] - before[k - 1])
        torch.testing.assert_close(ahead[k], expected, rtol=1e-12, atol=1e-14)
        assert not torch.equal(ahead[k], before[k])
    for k in range(4):
        assert torch.equal(after_release[k], before[k]), "restored bit by bit"


def test_parameters_are_restored_when_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(gaussian(4), denoiser=Kalman(gain=0.3))
    run = trainer.run()
    next(run)
    next(run)
    theta = flat(trainer.model.parameters())

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateRun, "_encode_batch_sum", fails)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert torch.equal(flat(trainer.model.parameters()), theta)


# -- micro-batches -----------------------------------------------------------------------------------------------------


def test_micro_batches_sum_encoded_averages_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputed by one backward pass for each example and the groups that were drawn."""
    encoder = L2(dim=DIM, radius=0.05, micro_batch=2)
    mechanism = Mechanism(encoder, Gaussian(scale=1.0), rate=0.5, steps=3)
    draws: list[np.ndarray] = []
    groups: list[np.ndarray] = []
    sums: list[torch.Tensor] = []
    draw, group, release = PoissonSampler.draw, PoissonSampler.groups, private_run.release

    def watched_draw(self: PoissonSampler) -> np.ndarray:
        draws.append(draw(self))
        return draws[-1]

    def watched_groups(self: PoissonSampler, members: int, count: int) -> np.ndarray:
        assert count == 10, "expected batch 20 over 2, whatever was drawn"
        groups.append(group(self, members, count))
        return groups[-1]

    def watched_release(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        sums.append(total.unsafe_values().clone())
        return release(mechanism, total, **options)

    monkeypatch.setattr(PoissonSampler, "draw", watched_draw)
    monkeypatch.setattr(PoissonSampler, "groups", watched_groups)
    monkeypatch.setattr(private_run, "release", watched_release)
    model, private = _private(mechanism, chunk=3)
    x, y = examples()
    list(private)
    for index, drawn, total in zip(draws, groups, sums, strict=True):
        averages = {int(g): torch.zeros(DIM, dtype=torch.float64) for g in drawn}
        for i, g in zip(index, drawn, strict=True):
            loss = LOSS(model(x[i : i + 1]), y[i : i + 1])
            averages[int(g)] += flat(torch.autograd.grad(loss, list(model.parameters()))) / 2
        expected = torch.stack([v * min(1.0, 0.05 / float(v.norm())) for v in averages.values()]).sum(dim=0)
        torch.testing.assert_close(total, expected, rtol=3e-7, atol=len(averages) * encoder.quantum)


def test_an_empty_batch_of_micro_batches_is_a_step() -> None:
    mechanism = Mechanism(L2(dim=DIM, micro_batch=2), Gaussian(scale=1.0), rate=1e-12, steps=2)
    assert list(_private(mechanism)[1]) == [1, 2]


# -- the trainer -------------------------------------------------------------------------------------------------------


def test_averaging_and_schedule_are_torch_s_own() -> None:
    """By hand: an exponential moving average, started from the first weights, and the scheduler's learning rates."""
    trainer = trainer_of(gaussian(5), averaging=0.8, seed=0)
    rates, thetas = [], []
    for _ in trainer.run():
        rates.append(trainer.optimizer.param_groups[0]["lr"])
        thetas.append(flat(trainer.model.parameters()))
    assert rates == pytest.approx([0.1 * 0.99**k for k in range(1, 6)], rel=1e-12)
    average = thetas[0]
    for theta in thetas[1:]:
        average = 0.8 * average + 0.2 * theta
    torch.testing.assert_close(flat(trainer.evaluated.parameters()), average)
    assert trainer_of(gaussian()).evaluated is not None


def test_a_trainer_learns() -> None:
    x = torch.randn(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = x.argmax(dim=1)
    trainer = trainer_of(gaussian(150, rate=0.25), data=(x, y), lr=0.5, seed=0)
    start = accuracy(trainer.model, x, y)
    for _ in trainer.run():
        pass
    assert start < 0.6
    assert accuracy(trainer.model, x, y) > 0.85


def test_accuracy_leaves_the_mode_alone() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Identity())
    x = torch.eye(50).repeat(30, 1)
    y = torch.arange(50).repeat(30)
    assert accuracy(model, x, y) == 1.0, "no dropout while it is measured"
    assert model.training
    model.eval()
    accuracy(model, x, y, batch=7)
    assert not model.training


# -- input that is refused ---------------------------------------------------------------------------------------------


def test_refused(tmp_path: Path) -> None:
    x, y = examples()
    with refused(InvalidInput, match="the encoder has dimension 5, the model has 283"):
        _private(gaussian().replace(encoder=L2(dim=5)))
    with refused(InvalidInput, match="scale"):
        _private(gaussian().replace(noise=Gaussian()))
    with refused(InvalidInput, match="no mechanism"):
        make_private(network(), LOSS, (x, y), ())
    with refused(InvalidInput, match="the data set is empty"):
        make_private(network(), LOSS, (x[:0], y[:0]), gaussian())
    with refused(InvalidInput, match="do not fit"):
        make_private(network(), LOSS, (x, y[:-1]), gaussian())
    with refused(InvalidInput, match="chunk"):
        _private(chunk=0)
    with refused(InvalidInput, match="seed"):
        _private(seed="x")
    with refused(InvalidInput, match=f"at least 1/{EXAMPLES}"):
        _private()[1].guarantee(1 / EXAMPLES)


def test_a_seed_of_numpy_repeats_the_same_run() -> None:
    ours, theirs = (_private(seed=seed)[1].step().values for seed in (5, np.int64(5)))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("state", [{}, network().state_dict(), None], ids=["empty", "a model's", "None"])
def test_another_state_is_refused(state: Any) -> None:
    with refused(InvalidInput, match="not that of a private run"):
        _private()[1].load_state_dict(state)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps], ids=["deep copy", "copy", "pickle"])
def test_a_run_is_not_copied(copied: Callable[[PrivateRun], object]) -> None:
    with refused(InvalidInput, match=r"neither copied nor pickled.*\n\n.*state_dict\(\)"):
        copied(_private()[1])


def test_models_that_mix_examples_are_refused() -> None:
    x, y = examples()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    dim = sum(p.numel() for p in model.parameters())
    with refused(InvalidInput, match="BatchNorm"):
        make_private(model, LOSS, (x, y), gaussian().replace(encoder=L2(dim=dim)))


def test_one_example_is_enough() -> None:
    x, y = examples(count=1)
    private = make_private(network(), LOSS, (x, y), gaussian(2, rate=1.0), denoiser=Identity())
    assert list(private) == [1, 2]
    assert isinstance(Trainer(private, torch.optim.SGD(private.parameters)).evaluated, nn.Module)
