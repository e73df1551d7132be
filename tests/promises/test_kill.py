"""P13: whatever moment a run is killed at, what it released is paid, and it can be brought to its end."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from noisette.accounting import Ledger, ledger, read_ledger
from noisette.app.recipes import Recipe
from noisette.app.runs import reopen, start
from noisette.training import private_run
from tests.support.helpers import refused
from tests.support.tiny_run import RECIPE_STEPS as STEPS
from tests.support.tiny_run import gaussian, recipe, trainer_of


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a child of this warm process; its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads only wait, and the child starts none
        child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def count_releases(patch: Callable[[Any, str, Any], object], path: Path) -> None:
    """One byte in `path` for each release, written before the release is made."""
    release = private_run.release
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def counted(*args: Any, **options: Any) -> Any:
        os.write(file, b".")
        return release(*args, **options)

    patch(private_run, "release", counted)


def _train(root: Path, releases: Path, plan: Recipe) -> None:
    count_releases(setattr, releases)
    for _ in start(root, plan).points():
        pass


def _killed(root: Path, plan: Recipe, after: float) -> int:
    """Start a run, kill it `after` seconds; how many releases it had begun."""
    releases = root / "releases"
    child = forked(lambda: _train(root, releases, plan))
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, "the run failed by itself"
    return releases.stat().st_size if releases.exists() else 0


def _spent(folder: Path) -> int:
    with Ledger(folder / "ledger.jsonl", must_exist=True) as ledger:
        return sum(mechanism.steps for mechanism in ledger.mechanisms())


def _check(root: Path, plan: Recipe, released: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a kill left behind is in order; at which stage it came."""
    folder = root / "tiny-0001"
    if not (folder / "settings.json").exists():
        assert released == 0
        return "before the run"
    paid = _spent(folder) if (folder / "ledger.jsonl").exists() else 0  # the folder comes first, then its ledger
    assert released <= paid <= STEPS
    with monkeypatch.context() as patch:
        count_releases(patch.setattr, root / "releases")
        opened = reopen(folder)
        lost = opened.resume()
        assert lost == paid - opened.private.num_updates
        points = [point for point in opened.points() if point is not None]
        opened.close()
    assert opened.private.steps_remaining == 0
    assert _spent(folder) == STEPS
    assert opened.private.num_updates == STEPS - lost
    assert (root / "releases").stat().st_size <= STEPS
    assert (folder / "model.pt").exists()
    assert (folder / "guarantee.json").exists()
    updates = [json.loads(line)["updates"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    if paid == STEPS:
        updates.pop()  # stands where the checkpoint stood: same weights, but all steps paid
    assert updates == sorted(set(updates)), "a point was written twice"
    if paid < STEPS:
        assert points[-1].paid == STEPS
        return "midway"
    return "after the last payment"


def _kills(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> set[str]:
    plan = recipe(tmp_path)
    warm = tmp_path / "warm"
    for _ in start(warm, plan).points():  # so that imports and privacy losses are at hand in every child
        pass
    began = time.monotonic()
    os.waitpid(forked(lambda: _train(tmp_path / "timed", tmp_path / "timed-releases", plan)), 0)
    length = time.monotonic() - began
    rng, stages = random.Random(seed), set()
    for number in range(count):
        root = tmp_path / str(number)
        root.mkdir()
        released = _killed(root, plan, rng.uniform(0, 1.05 * length))
        stages.add(_check(root, plan, released, monkeypatch))
    return stages


def test_kill_at_5_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "midway" in _kills(5, tmp_path, monkeypatch, seed=0)


@pytest.mark.slow
def test_kill_at_200_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "midway" in _kills(200, tmp_path, monkeypatch, seed=1)


def test_paying_after_the_release_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: with the payment behind the release, a kill in between leaves a release unpaid."""

    def late(self: private_run.PrivateRun, which: int) -> None:
        self._paid[which] += 1

    def run() -> None:
        count_releases(setattr, tmp_path / "releases")
        trainer = trainer_of(gaussian(), ledger=tmp_path / "ledger.jsonl")
        for _ in trainer.run():
            os.kill(os.getpid(), signal.SIGKILL)  # before the payment of this step

    for fault in (False, True):
        with monkeypatch.context() as patch:
            if fault:
                patch.setattr(private_run.PrivateRun, "_pay", late)
            os.waitpid(forked(run), 0)
        with Ledger(tmp_path / "ledger.jsonl") as ledger:
            covered = (tmp_path / "releases").stat().st_size <= ledger.spent(gaussian())
        assert covered is not fault


def test_a_kill_between_the_two_ledgers_costs_steps_but_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own ledger has paid, the data set's has not: nothing was released, so both are right."""
    plan = recipe(tmp_path, steps=4)
    opened = start(tmp_path, plan, shared=tmp_path / "all.jsonl")
    monkeypatch.setattr(opened._books[1], "_append", _interrupt)  # this object only
    with pytest.raises(KeyboardInterrupt):
        list(opened.points())
    opened.close()
    opened = reopen(tmp_path / "tiny-0001")
    assert opened.resume() == 1
    list(opened.points())
    opened.close()
    assert _spent(tmp_path / "tiny-0001") == 4
    with Ledger(tmp_path / "all.jsonl") as book:
        assert sum(mechanism.steps for mechanism in book.mechanisms()) == 3 == opened.private.num_updates


@pytest.mark.parametrize("written", [0, 1, 5, 12, 60, -1])
@pytest.mark.parametrize("payment", [0, 1, 7])
def test_a_kill_in_the_middle_of_a_write_is_no_obstacle(tmp_path: Path, written: int, payment: int) -> None:
    """The write number `payment` leaves `written` bytes: of the plan, of the first payment, of a later one."""
    folder = tmp_path / "tiny-0001"

    def run() -> None:
        opened, honest, calls = start(tmp_path, recipe(tmp_path, steps=12)), os.write, [0]
        count_releases(setattr, tmp_path / "releases")

        def killed(file: int, data: bytes) -> int:
            if file == opened._books[0]._file:
                calls[0] += 1
                if calls[0] == payment + 1:
                    honest(file, data[:written])
                    os.kill(os.getpid(), signal.SIGKILL)
            return honest(file, data)

        ledger.os.write = killed  # type: ignore[assignment]
        for _ in opened.points():
            pass

    _, status = os.waitpid(forked(run), 0)
    assert os.WIFSIGNALED(status)
    released = (tmp_path / "releases").stat().st_size
    left = (folder / "ledger.jsonl").read_bytes()
    assert read_ledger(folder / "ledger.jsonl").torn_steps == (None if written == 0 else 0 if payment == 0 else 1)
    assert _spent(folder) >= released
    (folder / "ledger.jsonl").write_bytes(left)
    opened = reopen(folder)
    assert (opened.torn_ledgers == []) is (written == 0)
    opened.resume()
    list(opened.points())
    opened.close()
    assert _spent(folder) == 12
    assert opened.private.steps_remaining == 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_cut_off_after_its_last_payment_still_gets_its_results(tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=4))
    opened._books[0].spend(opened.mechanism, 4)
    opened.close()
    opened = reopen(tmp_path / "tiny-0001")
    assert opened.resume() == 4
    (point,) = opened.points()
    assert point is not None
    assert (point.updates, point.paid) == (0, 4)
    assert list(opened.points()) == [], "only once"
    opened.close()


def test_a_mechanism_changed_before_the_first_checkpoint_is_refused(tmp_path: Path) -> None:
    opened = start(tmp_path, recipe(tmp_path, steps=40))
    next(opened.points())
    opened.close()
    path = tmp_path / "tiny-0001" / "mechanism.toml"
    path.write_text(path.read_text().replace("scale=5.0", "scale=50.0"))
    for _ in range(2):  # and the ledger is given back
        with refused(match="another mechanism"):
            reopen(tmp_path / "tiny-0001")
