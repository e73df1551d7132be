"""What three busy processes beside it cost a command: ``python benchmarks/busy.py``, or with a command of your own.

Runs ``noisette train mnist --epsilon 1``, or ``noisette`` with the arguments that are given, on a machine that should
be quiet otherwise, each time with an empty cache: alone, beside three processes that never rest, and alone with threads
that spin while they wait, as they do without noisette's setting. Prints CPU and wall time side by side, writes them to
benchmarks/results/busy.json, and has the exit status 1 when CPU time grows by more than the bar.
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
SPINNING = {"GOMP_SPINCOUNT": "300000"}  # what GNU's OpenMP does when it is told nothing


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
    print(f"noisette {' '.join(arguments)}; load average before: {load:.2f}, {os.cpu_count()} cores", flush=True)
    rows = {}
    for name, others, setting in (("alone", 0, {}), ("beside three", BUSY, {}), ("alone, spinning", 0, SPINNING)):
        with busy(others):
            cpu, wall = run(arguments, setting)
        rows[name] = {"cpu": round(cpu, 1), "wall": round(wall, 1)}
        print(f"{name:16} {cpu:8.1f} s of CPU {wall:8.1f} s", flush=True)
    return report(arguments, load, rows)


def report(arguments: list[str], load: float, rows: dict[str, dict[str, float]]) -> int:
    """Print ratios to the quiet run, and keep everything."""
    growth = rows["beside three"]["cpu"] / rows["alone"]["cpu"]
    quiet = rows["alone"]["wall"] / rows["alone, spinning"]["wall"]
    print(f"CPU time grows {growth:.2f} times, bar {BAR:g}: {'pass' if growth <= BAR else 'FAIL'}")
    print(f"alone it takes {quiet:.2f} of the wall time of spinning threads")
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load before": round(load, 2)}
    ratios = {"growth": round(growth, 2), "of spinning": round(quiet, 2)}
    found = {"command": arguments, "busy": BUSY, "bar": BAR, **machine, **ratios, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return int(growth > BAR)


if __name__ == "__main__":
    sys.exit(main())
