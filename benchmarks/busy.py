"""What three busy processes beside it cost a command: ``python benchmarks/busy.py``, or with a command of your own.

Runs ``noisette train mnist --epsilon 1``, or ``noisette`` with the arguments that are given, on a machine that should
be quiet otherwise, alone and beside three processes that never rest, each with an empty cache; first as noisette sets
up its threads, then as they are without it, when threads that wait spin. Prints CPU and wall time side by side, writes
them to benchmarks/results/busy.json, and has the exit status 1 when CPU time grows by more than the bar.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY = 3
BAR = 2.5
DEFAULT = ["train", "mnist", "--epsilon", "1"]
RESULTS = Path(__file__).parent / "results" / "busy.json"
SETTINGS = {
    "as it is": {},
    "spinning": {"GOMP_SPINCOUNT": "300000"},  # what GNU's OpenMP does when it is told nothing
}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Inside, `count` other processes use all the time that they get."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def run(arguments: list[str], setting: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of ``noisette ARGUMENTS`` in an empty folder, for somebody who has set nothing."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    if root := plain.get("NOISETTE_DATA"):
        plain["NOISETTE_DATA"] = str(Path(root).resolve())
    with tempfile.TemporaryDirectory() as folder:
        environment = plain | setting | {"NOISETTE_CACHE": f"{folder}/cache"}
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-m", "noisette", *arguments]
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> int:
    arguments = sys.argv[1:] or DEFAULT
    load = os.getloadavg()[0]
    print(f"noisette {' '.join(arguments)}; load average before: {load:.2f}, {os.cpu_count()} cores")
    print(f"{'threads':10} {'alone: CPU s':>13} {'wall s':>8} {'beside: CPU s':>14} {'wall s':>8} {'CPU ratio':>10}")
    rows = []
    for name, setting in SETTINGS.items():
        cpu, wall = run(arguments, setting)
        with busy(BUSY):
            busy_cpu, busy_wall = run(arguments, setting)
        row = {"cpu": cpu, "wall": wall, "busy cpu": busy_cpu, "busy wall": busy_wall, "ratio": busy_cpu / cpu}
        print(f"{name:10} {cpu:13.1f} {wall:8.1f} {busy_cpu:14.1f} {busy_wall:8.1f} {busy_cpu / cpu:10.2f}", flush=True)
        rows.append({"threads": name} | {key: round(value, 2) for key, value in row.items()})
    mended, spinning = rows
    passed = mended["ratio"] <= BAR
    print(f"alone, our threads take {mended['wall'] / spinning['wall']:.2f} of the wall time of spinning ones")
    print(f"CPU time grows {mended['ratio']:.2f} times, bar {BAR:g}: {'pass' if passed else 'FAIL'}")
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load before": round(load, 2)}
    found = {"command": arguments, "busy": BUSY, "bar": BAR, "passed": passed, **machine, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
