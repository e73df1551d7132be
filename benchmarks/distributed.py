"""How much faster two processes are than one: ``make bench``. One thread each, joined by gloo on this machine.

Whole private steps of the CIFAR network (550,570 parameters) with ranked encoding, Student-t noise and KS denoising, at
the same expected batch. Runs of one and of two processes take turns; the ratio of examples a second is taken within
each pair, and the median of the pairs counts. Beside it stands what of a step is spent on adding up over processes, and
what that would take in four pieces: the most that overlapping it with the backward pass could win, and its cost. The
ratio of processor time, of the busier process, says what to expect where other programs take no part of the cores.

Prints a table on standard output and writes the same numbers to benchmarks/results/distributed.json; the exit status is
1 when the bar is missed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import multiprocessing, nn

from noisette import Mechanism, Trainer, make_private
from noisette.app.models import cifar_cnn
from noisette.denoisers import KS
from noisette.encoders import Ranked
from noisette.noise import StudentT

BATCHES = (64, 256)
BAR = 1.6  # at the larger batch
PAIRS = 3
EXAMPLES = 2048
RESULTS = Path(__file__).parent / "results" / "distributed.json"


def measure(rank: int, size: int, store: str, batch: int, out: str) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", f"file://{store}", timedelta(seconds=300), size, rank)
    public = torch.Generator().manual_seed(0)
    inputs = torch.rand(EXAMPLES, 3, 32, 32, generator=public)
    targets = torch.randint(10, (EXAMPLES,), generator=public)
    torch.manual_seed(0)
    model = cifar_cnn(width=32).to(memory_format=torch.channels_last)
    dim = sum(p.numel() for p in model.parameters())
    steps = max(3, 512 // batch)
    mechanism = Mechanism(Ranked(dim), StudentT(df=9, scale=1.0), rate=batch / EXAMPLES, steps=steps + 1)
    private = make_private(model, nn.CrossEntropyLoss(), (inputs, targets), mechanism, denoiser=KS(), seed=0)
    run = Trainer(private, torch.optim.SGD(model.parameters(), lr=0.1)).run()
    next(run)  # warm
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    for _ in run:
        pass
    busy = torch.tensor((time.process_time() - worked) / steps, dtype=torch.float64)
    dist.barrier()
    seconds = (time.perf_counter() - began) / steps
    dist.all_reduce(busy, dist.ReduceOp.MAX)
    found = {
        "examples_a_second": batch / seconds,
        "step": seconds,
        "busy": float(busy),
        "reduce": reduction(dim, 1),
        "reduce_4": reduction(dim, 4),
    }
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def reduction(dim: int, pieces: int) -> float:
    """Seconds to add up `pieces` partial sums over all processes, as overlapping would have to; the median of ten."""
    values, seconds = torch.ones(dim, dtype=torch.float64), []
    for _ in range(10):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(pieces):
            dist.all_reduce(values)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def run(size: int, batch: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store, out = f"{folder}/store", f"{folder}/out"
        multiprocessing.spawn(measure, (size, store, batch, out), nprocs=size)
        found: dict[str, float] = json.loads(Path(out).read_text())
    return found


def case(batch: int) -> dict[str, Any]:
    pairs = []
    for number in range(1, PAIRS + 1):
        print(f"batch {batch}: pair {number} of {PAIRS}", file=sys.stderr)
        pairs.append((run(1, batch), run(2, batch)))
    ratios = [two["examples_a_second"] / one["examples_a_second"] for one, two in pairs]
    median = {
        f"{name}_{size}": statistics.median(pair[size - 1][name] for pair in pairs)
        for size in (1, 2)
        for name in ("examples_a_second", "step", "busy", "reduce", "reduce_4")
    }
    bar = BAR if batch == max(BATCHES) else None
    ratio = statistics.median(ratios)
    return {
        "batch": batch,
        "ratio": ratio,
        "ratios": ratios,
        "bar": bar,
        "passed": bar is None or ratio >= bar,
        **median,
    }


def main() -> int:
    rows = [case(batch) for batch in BATCHES]
    print("batch  1 process  2 processes  ratio   bar        processor time  adding up, of a step; in 4 pieces")
    for row in rows:
        one, two, step = row["examples_a_second_1"], row["examples_a_second_2"], row["step_2"]
        bar, verdict = row["bar"] or "-", "pass" if row["passed"] else "FAIL"
        shares = f"{row['reduce_2'] / step:.1%}; {row['reduce_4_2'] / step:.1%}"
        busy = row["busy_1"] / row["busy_2"]
        rates = f"{row['batch']:5} {one:8.1f}/s {two:10.1f}/s {row['ratio']:6.2f}"
        print(f"{rates} {bar:>5}  {verdict} {busy:15.2f}  {shares}")
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "torch": torch.__version__, "processor": platform.machine()}
    load = os.getloadavg()[0]
    RESULTS.write_text(json.dumps({"pairs": PAIRS, "load": load, **machine, "rows": rows}, indent=2) + "\n")
    return int(not all(row["passed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
