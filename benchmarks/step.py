"""One private training step beside plain SGD and Opacus: the same model, batch and process, interleaved, ratios.

    python benchmarks/step.py            # everything, writes benchmarks/results/step.json and step.png
    python benchmarks/step.py --rounds 5

Times are CPU seconds of the process with one thread, so that other work on the machine hardly matters; the two-thread
figure is wall time. A step is everything from a batch in memory to updated weights. Ours draws its noise from AES and
measures the KS distance exactly; ledgers, which sync to disk once in up to 16 steps, are left out on all sides.
"""

from __future__ import annotations

import argparse
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
from torch import Tensor, nn

from noisette import KS, L2, Gaussian, Mechanism, PaperGaussian, Ranked, StudentT, make_private
from noisette._kernels import native
from noisette.models.convolutional import cifar_cnn, mnist_cnn
from noisette.report.style import GREY, INK, PALETTE, panels, save

Step = Callable[[], object]
RESULTS = Path(__file__).parent / "results"
LAST = torch.channels_last


class Block(nn.Module):
    """A transformer block on 16 tokens: Linear layers on sequences have no rule and go through torch.func."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.attend, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.attend(self.norm(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (w // self.heads) ** 0.5).softmax(dim=-1)
        x = x + self.mix((weights @ v).transpose(1, 2).reshape(b, t, w))
        return self.out((x + self.narrow(torch.relu(self.wide(x)))).mean(dim=1))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "M": (mnist_cnn, (1, 28, 28), 256),
    "C": (lambda: cifar_cnn(activation="tanh", width=32), (3, 32, 32), 64),
    "T": (Block, (16, 32), 64),
}


def batch(case: str, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = CASES[case][1]
    return torch.rand(size, *shape, generator=generator), torch.randint(10, (size,), generator=generator)


def plain(case: str, size: int, last: bool) -> Step:
    model, (x, y) = CASES[case][0](), batch(case, size)
    if last:
        model, x = model.to(memory_format=LAST), x.to(memory_format=LAST)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def ours(case: str, size: int, encoded: bool) -> Step:
    """Rate 1 on a data set of one batch, so that a step has exactly `size` examples."""
    model, (x, y) = CASES[case][0](), batch(case, size)
    dim = sum(p.numel() for p in model.parameters())
    if encoded:
        profiles = PaperGaussian(n=1000) if dim < 100_000 else PaperGaussian(n=1000, levels=512)
        mechanism = Mechanism(Ranked(dim=dim, profiles=profiles), StudentT(df=9, scale=1.0), rate=1.0, steps=10**6)
    else:
        mechanism = Mechanism(L2(dim=dim), Gaussian(scale=1.1), rate=1.0, steps=10**6)
    private = make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism, denoiser=KS() if encoded else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        private.step()
        optimizer.step()

    return step


def opacus(case: str, size: int, mode: str, last: bool) -> Step:
    """A full step of Opacus: per-example gradients, clipping, noise, update."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inner, (x, y) = CASES[case][0](), batch(case, size)
    if last:
        inner, x = inner.to(memory_format=LAST), x.to(memory_format=LAST)
    sgd = torch.optim.SGD(inner.parameters(), lr=0.01)
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 1.0, "expected_batch_size": size}
    if mode == "ghost":
        model = GradSampleModuleFastGradientClipping(inner, max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(sgd, **settings)
        loss = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss(reduction="mean"), "mean")
    else:
        model = GradSampleModuleExpandedWeights(inner) if mode == "ew" else GradSampleModule(inner)
        optimizer, loss = DPOptimizer(sgd, **settings), nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def contenders(case: str, size: int) -> dict[str, Step]:
    found = {"ours Ranked+StudentT+KS": ours(case, size, True), "ours L2+Gaussian": ours(case, size, False)}
    if case == "T":
        return found | {"plain SGD": plain(case, size, False), "Opacus hooks": opacus(case, size, "hooks", False)}
    for last in (True, False):
        name = "channels_last" if last else "as shipped"
        found[f"plain SGD {'channels_last' if last else 'NCHW'}"] = plain(case, size, last)
        for mode in ("hooks", "ew", "ghost"):
            found[f"Opacus {mode} {name}"] = opacus(case, size, mode, last)
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


def compared(case: str, size: int, rounds: int) -> dict[str, object]:
    steps = contenders(case, size)
    times = interleaved(steps, rounds)
    names, milliseconds = list(steps), np.median(times, axis=0) * 1e3
    ratios = times[:, :1] / times
    quartiles = np.quantile(ratios, [0.25, 0.5, 0.75], axis=0)
    for name, ms, low, middle, high in zip(names, milliseconds, *quartiles, strict=True):
        print(f"  {case} {size:5d}  {name:28s} {ms:8.1f} ms   ours / this {middle:.2f}  [{low:.2f}, {high:.2f}]")
    rows = {
        name: {"ms": round(float(ms), 2), "ratio": [round(float(q), 3) for q in column]}
        for name, ms, column in zip(names, milliseconds, quartiles.T, strict=True)
    }
    return {"case": case, "batch": size, "rounds": rounds, "rows": rows}


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
    by_batch = np.median(interleaved({str(b): ours("M", b, True) for b in sizes}, rounds), axis=0)
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
    step = ours("C", 64, True)

    def with_threads(n: int) -> Step:
        return lambda: (torch.set_num_threads(n), step())

    times = interleaved({"1": with_threads(1), "2": with_threads(2)}, rounds, time.perf_counter)
    torch.set_num_threads(1)
    gain = float(np.median(times[:, 0] / times[:, 1]))
    print(f"  two threads: {gain:.2f} times the throughput of one")
    return gain


def memory(name: str) -> float:
    """Peak megabytes above set-up of one step on C with 256 examples, in a process of its own."""
    command = [sys.executable, __file__, "--memory", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_memory(name: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = {
        "ours": lambda: ours("C", 256, True),
        "plain": lambda: plain("C", 256, True),
        "hooks": lambda: opacus("C", 256, "hooks", False),
        "ghost": lambda: opacus("C", 256, "ghost", False),
    }
    step = made[name]()
    start = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the set-up
    step(), step()
    print((_resident("VmHWM") - start) / 1024)


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def draw(found: dict[str, object]) -> None:
    figure, axes = panels(2, width=5.6, height=3.8)
    for axis, row in zip(axes, found["steps"], strict=False):
        rows = row["rows"]
        base = rows["plain SGD channels_last"]["ms"]
        order = sorted(rows, key=lambda name: rows[name]["ms"], reverse=True)
        axis.barh(
            order, [rows[n]["ms"] / base for n in order], color=[PALETTE[0] if "ours" in n else GREY for n in order]
        )
        axis.axvline(1, color=INK, linewidth=0.8)
        axis.set_xlabel("CPU time of a step / plain SGD, channels_last")
        axis.set_title(f"model {row['case']}, batch {row['batch']}", fontsize=11)
    save(figure, RESULTS / "step.png")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--memory", help=argparse.SUPPRESS)
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        measure_memory(given.memory)
        sys.exit()
    rounds = given.rounds
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message=".*(backward hook|Full backward|gradient layout contract).*")
    print(f"one thread, medians of {rounds} interleaved rounds, kernel {native.variant()}")
    found: dict[str, object] = {"kernel": native.variant(), "torch": torch.__version__}
    found["steps"] = [compared(case, size, rounds) for case, (_, _, size) in CASES.items()]
    found["memory_mb"] = {name: round(memory(name)) for name in ("plain", "ours", "ghost", "hooks")}
    print(f"  peak memory on C, batch 256: {found['memory_mb']} MB")
    found["scaling"] = against_size(max(3, rounds // 2))
    found["two_threads"] = round(threads(max(3, rounds // 2)), 2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "step.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
