"""How long accounting takes: ``make bench``. The median wall time of three runs on one core, with empty caches.

Prints a table on standard output and writes the same numbers to benchmarks/results/account.json; the exit status is 1
when a bar is missed. Each case is what a person waits for: nothing is warm but the imports.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from noisette import Mechanism, calibrate, guarantee
from noisette.accounting import rdp
from noisette.accounting._step_divergence import step_curve
from noisette.accounting.pld import privacy_loss
from noisette.encoders import Ranked
from noisette.encoders.profiles import HalfNormal, PaperGaussian, Profiles
from noisette.encoders.profiles import base as profile_sets
from noisette.noise import StudentT

RUNS = 3
DELTA = 1e-5
PARAMETERS = 26_010
RESULTS = Path(__file__).parent / "results" / "account.json"


def spent(dim: int, profiles: Profiles, accountant: str = "pld") -> float:
    mechanism = Mechanism(Ranked(dim, profiles), StudentT(df=9, scale=1.0), rate=256 / 60000, steps=14062)
    return guarantee(mechanism, DELTA, accountant).epsilon


def scale() -> float:
    mechanism = Mechanism(Ranked(PARAMETERS), StudentT(df=9), rate=256 / 60000, steps=14062)
    return calibrate(mechanism, epsilon=3.0, delta=DELTA).noise.known_scale


@dataclass(frozen=True)
class Case:
    """Something to wait for, the name of its answer, and how many seconds it may take."""

    name: str
    answer: str
    bar: float | None
    work: Callable[[], float]


CASES = (
    Case("pld, 26,010 coordinates", "epsilon", 8.0, lambda: spent(PARAMETERS, HalfNormal())),
    Case("pld, 10 million coordinates", "epsilon", 25.0, lambda: spent(10_000_000, HalfNormal())),
    Case("pld, 26,010 coordinates, 1000 profiles", "epsilon", None, lambda: spent(PARAMETERS, PaperGaussian(1000))),
    Case("calibrate to epsilon 3, 26,010 coordinates", "scale", 40.0, scale),
    Case("rdp, 26,010 coordinates", "epsilon", 3.0, lambda: spent(PARAMETERS, HalfNormal(), "rdp")),
)


def timed(case: Case) -> tuple[float, float]:
    seconds, answer = [], 0.0
    for run in range(1, RUNS + 1):
        print(f"{case.name}: run {run} of {RUNS}", file=sys.stderr)
        for cached in (profile_sets.build, step_curve, privacy_loss, rdp._products):
            cached.cache_clear()
        began = time.perf_counter()
        answer = case.work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), answer


def main() -> int:
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        with threadpool_limits(limits=1):
            seconds, answer = timed(case)
        passed = None if case.bar is None else seconds <= case.bar
        rows.append(
            {"case": case.name, "seconds": round(seconds, 3), "bar": case.bar, "passed": passed, case.answer: answer}
        )
    print(f"{'case':44} {'seconds':>8} {'bar':>5}  {'':4}  answer")
    for case, row in zip(CASES, rows, strict=True):
        bar = "-" if case.bar is None else f"{case.bar:g}"
        verdict = {None: "-", True: "pass", False: "FAIL"}[row["passed"]]
        print(f"{case.name:44} {row['seconds']:8.2f} {bar:>5}  {verdict:4}  {case.answer} {row[case.answer]:.4f}")
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "torch": torch.__version__, "processor": platform.machine()}
    RESULTS.write_text(json.dumps({"runs": RUNS, "threads": 1, **machine, "rows": rows}, indent=2) + "\n")
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
