"""One private training step beside plain SGD and Opacus: the same model, batch and process, interleaved, ratios.

    python benchmarks/step.py            # everything, writes benchmarks/results/step.json and step.png
    python benchmarks/step.py --rounds 5

Times are CPU seconds of the process with one thread, so that other work on the machine hardly matters; the two-thread
figure is wall time. A step is everything from a batch in memory to updated weights. Ours draws its noise from AES and
measures the KS distance exactly; ledgers, which sync to disk once in up to 16 steps, are left out on all sides.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from cases import CASES, Step, opacus, ours, plain

from noisette import _native
from noisette.app.reports._mpl_style import GREY, INK, PALETTE, panels, save
from noisette.encoders import Ranked
from noisette.encoders.profiles import PaperGaussian

RESULTS = Path(__file__).parent / "results"


def contenders(case: str) -> dict[str, Step]:
    """One step of each: theirs run the model as it is and, where images make a difference, in channels-last layout."""
    found = {"ours Ranked+StudentT+KS": ours(case, encoded=True), "ours L2+Gaussian": ours(case, encoded=False)}
    if CASES[case].tokens:
        found |= {"plain SGD": plain(case), "Opacus hooks": opacus(case, "hooks")}
        return found if case == "R" else found | {"Opacus ghost": opacus(case, "ghost")}
    for last in (True, False):
        name = "channels_last" if last else "as shipped"
        found[f"plain SGD {'channels_last' if last else 'NCHW'}"] = plain(case, last=last)
        for mode in ("hooks", "ew", "ghost"):
            found[f"Opacus {mode} {name}"] = opacus(case, mode, last=last)
    return found


def interleaved(steps: dict[str, Step], rounds: int, clock: Callable[[], float] = time.process_time) -> np.ndarray:
    """Seconds (rounds, steps): each round takes one step of every contender."""
    for step in steps.values():
        step(), step()
    times = np.zeros((rounds, len(steps)))
    for row in times:
        for column, step in enumerate(steps.values()):
            start = clock()
            step()
            row[column] = clock() - start
    return times


def compared(case: str, rounds: int) -> dict[str, object]:
    """Median times, and quartiles of the ratios of our two steps to every other."""
    steps = contenders(case)
    times = interleaved(steps, rounds)
    rows = {}
    for column, name in enumerate(steps):
        ratios = [np.quantile(times[:, mine] / times[:, column], [0.25, 0.5, 0.75]) for mine in (0, 1)]
        ms = float(np.median(times[:, column])) * 1e3
        rows[name] = {"ms": round(ms, 2), "ratio": _rounded(ratios[0]), "l2_ratio": _rounded(ratios[1])}
        encoded, clipped = (f"{middle:.2f} [{low:.2f}, {high:.2f}]" for low, middle, high in ratios)
        print(f"  {case:3s} {name:28s} {ms:8.1f} ms   Ranked / this {encoded}   L2 / this {clipped}", flush=True)
    return {"case": case, "batch": CASES[case].size, "rounds": rounds, "rows": rows}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in values]


def affine(xs: list[int], ys: list[float]) -> float:
    """The largest relative deviation from the best fit a + b x, in relative error."""
    x, y = np.array(xs, dtype=float), np.array(ys)
    design = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    fit = np.linalg.lstsq(design, np.ones_like(y), rcond=None)[0]
    return float(np.abs(design @ fit - 1).max())


def against_size(rounds: int) -> dict[str, object]:
    dims, sizes = [26_010, 100_000, 550_570, 2_000_000, 5_000_000], [64, 128, 256, 512, 1024]
    rows = torch.randn(16, max(dims), generator=torch.Generator().manual_seed(0))
    encoders = [Ranked(dim=d, profiles=PaperGaussian(n=1000, levels=512)) for d in dims]
    encode = {str(e.dim): partial(e.encode_sum, rows[:, : e.dim].contiguous()) for e in encoders}
    by_dim = np.median(interleaved(encode, rounds), axis=0) / 16
    by_batch = np.median(interleaved({str(b): ours("M", b, encoded=True) for b in sizes}, rounds), axis=0)
    found = {
        "dims": dims,
        "encode_ms": [round(float(t) * 1e3, 3) for t in by_dim],
        "encode_off_linear": round(affine(dims, by_dim.tolist()), 3),
        "batches": sizes,
        "step_ms": [round(float(t) * 1e3, 2) for t in by_batch],
        "step_off_affine": round(affine(sizes, by_batch.tolist()), 3),
    }
    print(f"  encode: {found['encode_ms']} ms an example at d = {dims}: off a line by {found['encode_off_linear']:.0%}")
    print(f"  step:   {found['step_ms']} ms at B = {sizes}: off a line by {found['step_off_affine']:.0%}")
    return found


def threads(rounds: int) -> float:
    """How many times the throughput of one thread two have, on C, in wall time."""
    step = ours("C", encoded=True)

    def with_threads(n: int) -> Step:
        return lambda: (torch.set_num_threads(n), step())

    times = interleaved({"1": with_threads(1), "2": with_threads(2)}, rounds, time.perf_counter)
    torch.set_num_threads(1)
    gain = float(np.median(times[:, 0] / times[:, 1]))
    print(f"  two threads: {gain:.2f} times the throughput of one")
    return gain


MEMORY: dict[str, dict[str, Callable[[], Step]]] = {
    "C, batch 256": {
        "plain": lambda: plain("C", 256, last=True),
        "ours": lambda: ours("C", 256, encoded=True),
        "ghost": lambda: opacus("C", "ghost", 256),
        "hooks": lambda: opacus("C", "hooks", 256),
    },
    "big": {
        "plain": lambda: plain("big"),
        "ours, L2": lambda: ours("big", encoded=False),
        "ghost": lambda: opacus("big", "ghost"),
    },
}


def memory(case: str, name: str) -> tuple[float, float]:
    """Peak megabytes above set-up of two steps, and CPU seconds of the second, in a process of its own."""
    command = [sys.executable, __file__, "--memory", case, name]
    megabytes, seconds = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return round(float(megabytes)), round(float(seconds), 2)


def measure_memory(case: str, name: str) -> None:
    warnings.simplefilter("ignore")
    step = MEMORY[case][name]()
    ctypes.CDLL(None).malloc_trim(0)  # what the set-up has given back must not hide what a step takes
    start = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the set-up
    step()
    began = time.process_time()
    step()
    print((_resident("VmHWM") - start) / 1024, time.process_time() - began)


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def draw(found: dict[str, object]) -> None:
    figure, axes = panels(len(found["steps"]), width=5.6, height=3.2, rows=3)
    for axis, row in zip(axes, found["steps"], strict=True):
        rows = row["rows"]
        # by ratios within a round, which a machine that changes its speed on the way does not move
        base = (rows.get("plain SGD channels_last") or rows["plain SGD"])["ratio"][1]
        times = {name: base / one["ratio"][1] for name, one in rows.items()}
        order = sorted(times, key=lambda name: times[name], reverse=True)
        axis.barh(order, [times[n] for n in order], color=[PALETTE[0] if "ours" in n else GREY for n in order])
        axis.axvline(1, color=INK, linewidth=0.8)
        axis.set_xlabel("CPU time of a step / plain SGD")
        axis.set_title(f"model {row['case']}, batch {row['batch']}", fontsize=11)
    save(figure, RESULTS / "step.png")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        measure_memory(*given.memory)
        sys.exit()
    rounds = given.rounds
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message=".*(backward hook|Full backward|gradient layout contract).*")
    print(f"one thread, medians of {rounds} interleaved rounds, kernel {_native.variant()}")
    found: dict[str, object] = {"kernel": _native.variant(), "torch": torch.__version__}
    found["steps"] = [compared(case, rounds) for case in CASES if case != "big"]
    found["memory"] = {case: {name: memory(case, name) for name in names} for case, names in MEMORY.items()}
    for case, rows in found["memory"].items():
        print(f"  {case}: " + ", ".join(f"{name} {mb} MB, {s} s" for name, (mb, s) in rows.items()))
    found["scaling"] = against_size(max(3, rounds // 2))
    found["two_threads"] = round(threads(max(3, rounds // 2)), 2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "step.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
