"""A process that dies: the others say so and leave a checkpoint, everything released is paid, and the run goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noisette.accounting import Ledger
from noisette.app.recipes import Recipe
from noisette.app.runs import OpenRun, reopen, start
from noisette.errors import ProcessLost
from noisette.training import PrivateRun, private_run
from tests.support.children import LOST, Children, together
from tests.support.helpers import assert_well_formed
from tests.support.tiny_run import gaussian, recipe, trainer_of

STEPS = 240
PROCESSES = 2


def _count_releases(folder: Path, process: int) -> None:
    """One byte for each release of this process, written before it is made."""
    release = private_run.release
    file = os.open(folder / f"releases-{process}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def counted(*args: Any, **options: Any) -> Any:
        os.write(file, b".")
        return release(*args, **options)

    private_run.release = counted  # type: ignore[assignment]


def _to_the_end(opened: OpenRun) -> int:
    """Train as the command line does: a lost process leaves a checkpoint."""
    try:
        for _ in opened.points():
            pass
    except ProcessLost:
        opened.save()
        raise
    finally:
        opened.close()
    return opened.private.num_updates


def _begin(root: Path, plan: Recipe) -> Callable[[int], int]:
    def work(process: int) -> int:
        _count_releases(root, process)
        return _to_the_end(start(root, plan))

    return work


def _go_on(root: Path) -> Callable[[int], int]:
    def work(process: int) -> int:
        _count_releases(root, process)
        opened = reopen(root / "tiny-0001")
        lost = opened.resume()
        assert lost == opened.private.steps_paid - opened.private.num_updates
        updates = opened.private.num_updates
        assert _to_the_end(opened) - updates == STEPS - (updates + lost), "all that was left was taken"
        assert opened.private.steps_remaining == 0
        return opened.private.num_updates

    return work


def _paid(root: Path) -> int:
    with Ledger(root / "tiny-0001" / "ledger.jsonl", must_exist=True) as ledger:
        return sum(mechanism.steps for mechanism in ledger.mechanisms())


def _released(root: Path) -> int:
    """The most releases of any process."""
    return max((path.stat().st_size for path in root.glob("releases-*")), default=0)


def _check_one_kill(root: Path, plan: Recipe, after: float, victim: int) -> str:
    """Kill `victim` after so many seconds, judge what is left, go on with another number of processes."""
    children = Children(PROCESSES, _begin(root, plan), root / "first")
    time.sleep(after)
    children.kill(victim)
    codes = children.wait()
    if codes[victim] != LOST:
        assert codes == [0] * PROCESSES
        return "after the end"
    if codes[1 - victim] != 0:  # it may have taken its last step already
        error = children.outcome(1 - victim)
        if not (root / "tiny-0001" / "settings.json").exists():
            assert _released(root) == 0
            return "before the run"
        assert isinstance(error, ProcessLost), children.trace(1 - victim)
        assert_well_formed(error)
    paid = _paid(root)
    assert _released(root) <= paid <= STEPS
    updates = set(together(1 + victim * 2, _go_on(root), root / "again"))
    assert len(updates) == 1, "all processes end at the same place"
    assert _paid(root) == STEPS
    assert _released(root) <= STEPS
    return "midway" if paid < STEPS else "after the last payment"


def _kills(count: int, tmp_path: Path, seed: int) -> set[str]:
    plan = recipe(tmp_path, steps=STEPS)
    warm = start(tmp_path / "warm", plan)
    list(warm.points())  # so that privacy losses are at hand in every child
    warm.close()
    (tmp_path / "timed").mkdir()
    began = time.monotonic()
    together(PROCESSES, _begin(tmp_path / "timed", plan), tmp_path / "timed" / "processes")
    length = time.monotonic() - began
    rng, stages = random.Random(seed), []
    for number in range(count):
        root = tmp_path / str(number)
        root.mkdir()
        after = rng.uniform(0.3, 0.8) if count < 5 else rng.uniform(0, 1.05)
        stages.append(_check_one_kill(root, plan, after * length, number % PROCESSES))
    return set(stages)


def test_kill_at_2_moments(tmp_path: Path) -> None:
    """Once process 0 and once process 1, somewhere in the middle."""
    assert "midway" in _kills(2, tmp_path, seed=0)


@pytest.mark.slow
def test_kill_at_20_moments(tmp_path: Path) -> None:
    assert "midway" in _kills(20, tmp_path, seed=1)


def test_process_0_pays_before_anybody_releases(tmp_path: Path) -> None:
    """Killed in the middle of paying, process 0 leaves a release on no process; paying without waiting is seen."""

    def work(process: int) -> None:
        _count_releases(tmp_path, process)
        if process == 0:
            Ledger.spend = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
        list(trainer_of(gaussian(), ledger=tmp_path / "ledger.jsonl" if process == 0 else None).run())

    children = Children(3, work, tmp_path / "honest")
    assert children.wait() == [LOST, 1, 1]
    assert _released(tmp_path) == 0

    def hasty(process: int) -> None:
        if process != 0:
            PrivateRun._pay = lambda self, which: None  # type: ignore[method-assign]
        work(process)

    assert Children(3, hasty, tmp_path / "hasty").wait()[0] == LOST
    assert _released(tmp_path) == 1, "this is what the check is there to see"


def test_a_process_that_fails_by_itself_ends_the_others(tmp_path: Path) -> None:
    def work(process: int) -> None:
        for progress in trainer_of(gaussian()).run():
            if process == 2 and progress.updates == 3:
                raise ZeroDivisionError

    children = Children(3, work, tmp_path / "run")
    assert children.wait() == [1, 1, 1]
    assert [type(children.outcome(process)) for process in range(3)] == [ProcessLost, ProcessLost, ZeroDivisionError]
    assert children.outcome(0).sentence == "process 0 lost contact with another process of the run."
    assert "resume the run" in children.outcome(0).hint


def test_a_process_that_says_nothing_is_lost_after_the_timeout(tmp_path: Path) -> None:
    def mute(process: int) -> None:
        for progress in trainer_of(gaussian()).run():
            if process == 1 and progress.updates == 2:
                os.kill(os.getpid(), signal.SIGSTOP)  # neither dead nor alive

    children = Children(2, mute, tmp_path / "run", timeout=1.0)
    assert os.waitpid(children.ids[0], 0)[1] != 0
    assert isinstance(children.outcome(0), ProcessLost)
    children.kill(1)
    os.waitpid(children.ids[1], 0)


def test_the_checkpoint_of_the_survivor_has_every_update(tmp_path: Path) -> None:
    """Steps are paid two at a time: of those, at most one is lost."""
    plan = recipe(tmp_path, steps=STEPS)

    def work(process: int) -> int:
        opened = start(tmp_path, plan)
        if process == 1:
            for _ in opened.points():
                if opened.private.num_updates == 31:
                    os.kill(os.getpid(), signal.SIGKILL)
        return _to_the_end(opened)

    assert Children(2, work, tmp_path / "first").wait() == [1, LOST]

    def again(process: int) -> tuple[int, int]:
        opened = reopen(tmp_path / "tiny-0001")
        lost = opened.resume()
        opened.close()
        return lost, opened.private.num_updates

    assert together(2, again, tmp_path / "again") == [(1, 31)] * 2
