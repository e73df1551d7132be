"""How soon noisette answers: ``make bench``. The median CPU time of new processes, beside that of ``import torch``.

Every round starts each of them once, in turn, so that what else the machine does falls on all alike. Prints a table on
standard output and writes the same numbers to benchmarks/results/start.json; the exit status is 1 when a bar is missed.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 7
RESULTS = Path(__file__).parent / "results" / "start.json"
COMMAND = ("-m", "noisette")
MECHANISM = ("--encoder", "Ranked(dim=26010)", "--noise", "StudentT(df=9, scale=1.0)", "--rate", "256/60000")
TOUR = ("account", *MECHANISM, "--steps", "14062")
KEPT = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # modules are compiled in the first round only


@dataclass(frozen=True)
class Case:
    """What Python is started with, and how many seconds it may take, alone or on top of `import torch`."""

    name: str
    arguments: tuple[str, ...]
    bar: float | None = None
    above: bool = False


TORCH = Case("import torch", ("-c", "import torch"))
CASES = (
    TORCH,
    Case("noisette --help", (*COMMAND, "--help"), 0.5),
    Case("noisette no-such-command", (*COMMAND, "no-such-command"), 0.5),
    Case("noisette train --no-such-option", (*COMMAND, "train", "--no-such-option"), 0.5),
    Case("import torch, noisette", ("-c", "import torch, noisette"), 0.5, above=True),
    Case("all public names", ("-c", "import torch; from noisette import *")),
    # a delta of one in the number of examples is refused when all but the computing is done
    Case("the tour's account, not computed", (*COMMAND, *TOUR, "--examples", "100000"), 1.0, above=True),
    Case("the tour's account, computed", (*COMMAND, *TOUR)),
)


def seconds(case: Case) -> float:
    """CPU time of one process, its start and its end included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *case.arguments], capture_output=True, check=False, env=KEPT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    load = os.getloadavg()[0]
    found: dict[str, list[float]] = {case.name: [] for case in CASES}
    for turn in range(1, ROUNDS + 1):
        print(f"round {turn} of {ROUNDS}", file=sys.stderr)
        for case in CASES:
            found[case.name].append(seconds(case))
    rows = []
    print(f"{'process':36} {'CPU s':>6} {'of torch':>9} {'above it':>9}  bar")
    for case in CASES:
        took = statistics.median(found[case.name])
        ratio = statistics.median(a / b for a, b in zip(found[case.name], found[TORCH.name], strict=True))
        more = statistics.median(a - b for a, b in zip(found[case.name], found[TORCH.name], strict=True))
        passed = None if case.bar is None else (more if case.above else took) <= case.bar
        told = "-" if case.bar is None else f"{case.bar:g}{' above' * case.above}: {'pass' if passed else 'FAIL'}"
        print(f"{case.name:36} {took:6.2f} {ratio:9.2f} {more:+9.2f}  {told}")
        row = {"process": case.name, "seconds": round(took, 3), "ratio": round(ratio, 3), "above": round(more, 3)}
        rows.append(row | {"bar": case.bar, "passed": passed})
    machine = {"python": platform.python_version(), "processor": platform.machine(), "load before": round(load, 2)}
    RESULTS.write_text(json.dumps({"rounds": ROUNDS, **machine, "rows": rows}, indent=2) + "\n")
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
