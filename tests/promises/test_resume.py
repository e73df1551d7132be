"""Checkpoints: whole or absent, data and never code, nothing of any generator, and only for the run they belong to."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noisette import Mechanism, Private, Released, _io, make_private
from noisette.accounting import Ledger
from noisette.denoisers import Kalman, LowPass
from noisette.encoders import L2
from noisette.errors import InvalidInput, LedgerError, MechanismMismatch, NoisetteError
from noisette.noise import Gaussian
from noisette.random import Generator
from noisette.training import Trainer, private_run
from tests.support.helpers import refused
from tests.support.tiny_run import examples, flat, gaussian, network, room, trainer_of

STEPS = 8


def _stopped(folder: Path, steps: int = 3, **options: Any) -> Trainer:
    """A run that was stopped after `steps` steps, with a checkpoint, its ledger given back."""
    trainer = trainer_of(gaussian(STEPS), ledger=folder / "ledger.jsonl", averaging=0.9, **options)
    for progress in trainer.run():
        if progress.updates == steps:
            break
    trainer.save(folder / "checkpoint.pt")
    trainer.private._ledgers[0].close()
    return trainer


def _resumed(folder: Path, mechanism: Mechanism | None = None, **options: Any) -> Trainer:
    trainer = trainer_of(mechanism or gaussian(STEPS), ledger=folder / "ledger.jsonl", averaging=0.9, **options)
    try:
        trainer.load(folder / "checkpoint.pt")
    except NoisetteError:
        trainer.private._ledgers[0].close()
        raise
    return trainer


def _noise(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> list[list[float]]:
    """The noise of every step that is left."""
    out: list[list[float]] = []
    release = private_run.release

    def watched(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        values = total.unsafe_values().clone()
        released = release(mechanism, total, **options)
        out.append((released.values - values).tolist())
        return released

    with monkeypatch.context() as patch:
        patch.setattr(private_run, "release", watched)
        for _ in trainer.run():
            pass
    trainer.private._ledgers[0].close()
    return out


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("denoiser", [LowPass(), Kalman(gain=0.5)])
def test_everything_is_as_it_was(tmp_path: Path, denoiser: Any) -> None:
    before = _stopped(tmp_path, denoiser=denoiser)
    after = _resumed(tmp_path, denoiser=denoiser)
    assert torch.equal(flat(after.model.parameters()), flat(before.model.parameters()))
    assert torch.equal(flat(after.evaluated.parameters()), flat(before.evaluated.parameters()))
    assert after.private.state.keys() == before.private.state.keys()
    assert all(torch.equal(after.private.state[key], value) for key, value in before.private.state.items())
    assert after.optimizer.param_groups[0]["lr"] == before.optimizer.param_groups[0]["lr"] != 0.1
    buffers = [[s["momentum_buffer"] for s in t.optimizer.state.values()] for t in (before, after)]
    assert torch.equal(*map(flat, buffers))
    assert (after.private.num_updates, after.private.steps_paid) == (3, 3)
    assert [progress.updates for progress in after.run()] == [4, 5, 6, 7, 8]
    assert after.private._ledgers[0].spent(gaussian(STEPS)) == STEPS
    after.private._ledgers[0].close()


def test_steps_paid_after_the_checkpoint_stay_paid(tmp_path: Path) -> None:
    _stopped(tmp_path)
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        ledger.spend(gaussian(STEPS), 2)
    after = _resumed(tmp_path)
    assert (after.private.num_updates, after.private.steps_paid, after.private.steps_remaining) == (3, 5, 3)
    assert [progress.updates for progress in after.run()] == [4, 5, 6]
    assert after.private.steps_paid == STEPS
    after.private._ledgers[0].close()


def test_a_budget_is_not_reset_where_there_is_no_ledger(tmp_path: Path) -> None:
    """15 of 20 steps are taken, with or without a ledger: a process that goes on has 5 left, or does not go on."""
    x, y = examples()
    plan = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=20)
    first = make_private(network(), nn.CrossEntropyLoss(), (x, y), plan)
    for _ in range(15):
        first.step()
    again = make_private(network(), nn.CrossEntropyLoss(), (x, y), plan)
    again.load_state_dict(first.state_dict())
    assert (again.steps_paid, again.steps_remaining) == (15, 5)
    assert again.guarantee(1e-5).epsilon == first.guarantee(1e-5).epsilon
    with Ledger(tmp_path / "own.jsonl", data="x") as own, Ledger(tmp_path / "new.jsonl", data="x") as new:
        with refused(MechanismMismatch, match="a run without a ledger"):
            make_private(network(), nn.CrossEntropyLoss(), (x, y), plan, ledger=own).load_state_dict(first.state_dict())
        paying = make_private(network(), nn.CrossEntropyLoss(), (x, y), plan, ledger=own)
        paying.step()
        for books in ((), (new,), (new, own)):
            with refused(MechanismMismatch, match="not hold the entries"):
                make_private(network(), nn.CrossEntropyLoss(), (x, y), plan, ledger=books).load_state_dict(
                    paying.state_dict()
                )


def test_two_resumes_of_one_checkpoint_draw_different_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _repeats(tmp_path, monkeypatch)


def test_a_generator_state_restored_on_resume_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_run, "Generator", lambda seed, purpose, secret: Generator(12345, purpose=purpose))
    assert _repeats(tmp_path, monkeypatch)


def _repeats(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Does any noise of one resumed run come again in another one, or in the run before?"""
    (folder / "a").mkdir()
    torch.manual_seed(0)
    _stopped(folder / "a")
    shutil.copytree(folder / "a", folder / "b")
    seen: set[tuple[float, ...]] = set()
    for name in ("a", "b"):
        torch.manual_seed(0)
        drawn = {tuple(row) for row in _noise(monkeypatch, _resumed(folder / name))}
        assert len(drawn) == STEPS - 3
        if seen & drawn:
            return True
        seen |= drawn
    return False


def test_a_checkpoint_holds_public_values_only(tmp_path: Path) -> None:
    _stopped(tmp_path)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert set(state) == {"private", "model", "optimizer", "scheduler", "average"}
    keys = {"mechanism", "ledgers", "paid", "updates", "denoiser", "denoiser_state", "previous", "flags"}
    assert set(state["private"]) == keys
    assert not any(t.dtype == torch.uint8 for t in _tensors(state)), "a generator's state would be bytes"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _tensors(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(entry)


def test_a_generator_cannot_be_put_into_a_checkpoint(tmp_path: Path) -> None:
    with refused(InvalidInput, match="cannot be saved"):
        _io.save(tmp_path / "x.pt", {"generator": Generator()})
    assert not list(tmp_path.iterdir())


# -- what belongs to another run ---------------------------------------------------------------------------------------


def test_another_mechanism_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path)
    other = gaussian(STEPS).replace(noise=Gaussian(scale=1.5))
    with refused(MechanismMismatch, match="belongs to mechanism"):
        _resumed(tmp_path, other)


def test_more_steps_are_another_mechanism(tmp_path: Path) -> None:
    _stopped(tmp_path)
    with refused(MechanismMismatch):
        _resumed(tmp_path, gaussian(STEPS + 1))


def test_another_denoiser_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path, denoiser=LowPass(beta=0.5))
    with refused(MechanismMismatch, match="belongs to the denoiser"):
        _resumed(tmp_path, denoiser=LowPass(beta=0.6))


def test_a_cut_ledger_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with refused(MechanismMismatch, match="cut or exchanged|does not hold"):
        _resumed(tmp_path)


def test_a_cut_ledger_of_all_runs_is_refused(tmp_path: Path) -> None:
    own, shared = tmp_path / "own.jsonl", tmp_path / "all.jsonl"
    with Ledger(own, data="tiny") as first, Ledger(shared, data="tiny") as second:
        trainer = trainer_of(gaussian(STEPS), ledger=None)
        trainer.private._ledgers = (first, second)
        next(trainer.run())
        state = trainer.private.state_dict()
    shared.write_bytes(b"".join(shared.read_bytes().splitlines(keepends=True)[:-1]))
    with Ledger(own) as first, Ledger(shared) as second:
        trainer = trainer_of(gaussian(STEPS))
        trainer.private._ledgers = (first, second)
        with refused(MechanismMismatch, match="a ledger does not hold"):
            trainer.private.load_state_dict(state)
        trainer.private._ledgers = (first,)
        with refused(MechanismMismatch, match="a ledger does not hold"):
            trainer.private.load_state_dict(state)


def test_an_exchanged_ledger_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _stopped(tmp_path / name, steps=2 if name == "a" else 5)
    shutil.copy(tmp_path / "b" / "ledger.jsonl", tmp_path / "a" / "ledger.jsonl")
    with refused(MechanismMismatch):
        _resumed(tmp_path / "a")


def test_a_fresh_ledger_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path)
    (tmp_path / "ledger.jsonl").unlink()
    with refused(MechanismMismatch):
        _resumed(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    _stopped(tmp_path)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    state["model"] = {"other.weight": torch.zeros(3)}
    torch.save(state, tmp_path / "checkpoint.pt")
    with refused(InvalidInput, match="not a checkpoint of this model"):
        _resumed(tmp_path)


# -- damage ------------------------------------------------------------------------------------------------------------


class _Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path, how: str) -> None:
    path, marker = tmp_path / "checkpoint.pt", tmp_path / "gone-off"
    if how == "torch":
        torch.save({"model": _Bomb(marker)}, path)
    else:
        path.write_bytes(pickle.dumps(_Bomb(marker), protocol=2))
    with refused(InvalidInput, match="damaged or holds more than data"):
        _io.load(path)
    assert not marker.exists()
    if how == "pickle":
        pickle.loads(path.read_bytes())  # the bomb is live
        assert marker.exists()


def test_a_truncated_checkpoint_is_refused_at_any_length(tmp_path: Path) -> None:
    _stopped(tmp_path)
    path = tmp_path / "checkpoint.pt"
    whole = path.read_bytes()
    for length in (0, 1, 2, 10, *range(100, len(whole), len(whole) // 40), len(whole) - 1):
        path.write_bytes(whole[:length])
        with refused(InvalidInput, match="damaged"):
            _io.load(path)


def test_bytes_overwritten_anywhere_are_refused_or_harmless(tmp_path: Path) -> None:
    """A block of zeros lands in the archive's index, its pickle or a tensor; an unclear error is what may not come."""
    _stopped(tmp_path)
    path = tmp_path / "checkpoint.pt"
    whole = path.read_bytes()
    refusals = 0
    for start in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:start] + bytes(16) + whole[start + 16 :])
        try:
            _io.load(path)
        except InvalidInput:
            refusals += 1
    assert refusals > 5


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with refused(InvalidInput, match="has no none.pt"):
        _io.load(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("hello")
    with refused(InvalidInput, match="damaged"):
        _io.load(tmp_path / "text.pt")
    _stopped(tmp_path)
    for wrong in ({"weight": torch.zeros(2)}, [1, 2], torch.zeros(3)):
        torch.save(wrong, tmp_path / "checkpoint.pt")
        with refused(InvalidInput, match="not a checkpoint of this model"):
            _resumed(tmp_path)


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    trainer = _stopped(tmp_path)
    path = tmp_path / "checkpoint.pt"
    whole = path.read_bytes()
    for size in (0, 100, len(whole) - 1):
        with refused(InvalidInput, match="what was there is intact"), room(size):
            trainer.save(path)
        assert path.read_bytes() == whole
        assert not list(tmp_path.glob("*.new"))


def test_a_full_disk_releases_nothing_that_is_not_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped(tmp_path)
    trainer = _resumed(tmp_path)
    released: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(private_run, "release", lambda *_, **__: released.append(1))
        with refused(LedgerError, match="nothing was released"), room((tmp_path / "ledger.jsonl").stat().st_size + 7):
            next(trainer.run())
    assert released == []
    trainer.private._ledgers[0].close()
    again = _resumed(tmp_path)
    assert [progress.updates for progress in again.run()] == [4, 5, 6, 7, 8]
    again.private._ledgers[0].close()
