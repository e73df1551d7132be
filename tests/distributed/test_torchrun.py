"""The command line under a real torchrun: one run, one voice, and restarts that go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noisette.accounting import Ledger
from tests.support.tiny_run import recipe

TRAIN = ("train", "tiny.toml", "--json")


def _torchrun(folder: Path, *options: str, command: tuple[str, ...] = TRAIN) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *options, "-m", "noisette"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1"}
    return subprocess.Popen(
        [*words, *command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it wrote; one that hangs is ended, and its processes with it."""
    try:
        return process.communicate(timeout=400)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes
        process.communicate(timeout=40)
        raise


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _children(parent: int) -> list[int]:
    """Processes of torchrun by their number, its rank: it starts them in that order."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ranked = {}
    for child in map(int, listed):
        entries = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        rank = [entry for entry in entries if entry.startswith(b"RANK=")]
        if rank:
            ranked[int(rank[0][5:])] = child
    return [ranked[rank] for rank in sorted(ranked)]


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def _wait(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 100
    while not reached() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)


def _spent(folder: Path) -> int:
    with Ledger(folder / "ledger.jsonl", must_exist=True) as ledger:
        return sum(mechanism.steps for mechanism in ledger.mechanisms())


def test_a_process_is_killed_and_torchrun_starts_all_again(tmp_path: Path) -> None:
    """The same command goes on in the same folder; one JSON object comes out, from process 0.

    Four steps are paid at a time and the first checkpoint is at 100: with 30 lines in the ledger some will be lost.
    """
    steps = 600
    for attempt in "12":
        folder = tmp_path / attempt
        folder.mkdir()
        (folder / "tiny.toml").write_text(recipe(folder, steps=steps, evaluations=6).to_toml())
        process = _torchrun(folder, "--master-port", _free_port(), "--max-restarts", "1")
        run = folder / "runs" / "tiny-0001"
        try:
            _wait(process, lambda run=run: _lines(run / "metrics.jsonl") == 1 and _lines(run / "ledger.jsonl") > 30)
            os.kill(_children(process.pid)[0], signal.SIGKILL)
        finally:
            out, err = _ended(process)
        if "terminate called without an active exception" not in err:  # threads of C++ that end unlike Python's: rare
            break
    assert process.returncode == 0, err
    value = json.loads(out)  # one object, and nothing else
    assert value["run"] == "runs/tiny-0001"
    assert [path.name for path in (folder / "runs").iterdir()] == ["tiny-0001"]
    assert "steps were paid after the last checkpoint" in err
    assert 0 < value["steps"] < steps
    assert _spent(run) == steps
    points = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert points[-1]["paid"] == steps
    assert [point["updates"] for point in points] == sorted({point["updates"] for point in points})


@pytest.mark.slow
def test_torchrun_is_ended_from_outside_and_resumed(tmp_path: Path) -> None:
    """SIGTERM, as a queue sends it before it takes the machine back: a checkpoint of the last update is left."""
    steps = 100_000
    (tmp_path / "tiny.toml").write_text(recipe(tmp_path, steps=steps, evaluations=2).to_toml())
    process = _torchrun(tmp_path, "--standalone")
    run = tmp_path / "runs" / "tiny-0001"
    try:
        _wait(process, lambda: _lines(run / "ledger.jsonl") > 4)
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = _ended(process)
    assert process.returncode != 0
    assert out == ""
    assert err.count("go on with: noisette resume runs/tiny-0001") == 1
    assert (run / "checkpoint.pt").exists(), err
    assert not (run / "metrics.jsonl").exists(), "it was far from its first evaluation"
    assert _spent(run) < steps
