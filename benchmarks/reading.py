"""Examples that are read as they are drawn: how much memory they take, and whether a step waits for them.

    python benchmarks/reading.py             # both, on 200,000 made-up pictures of 3x64x64 that are nowhere in memory
    python benchmarks/reading.py --steps 10

Memory is what this process and its workers have more than after set-up, shared pages counted once (PSS). Waiting is
the time of a step on a Dataset that takes a millisecond an example beside the same step on tensors in memory, in one
process, interleaved, as the ratio of medians; only a wait shows, since sleeping takes no processor.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette import Mechanism, PrivateRun, make_private, plan
from noisette.app.models.convolutional import cifar_cnn
from noisette.encoders import L2
from noisette.noise import Gaussian

SHAPE = (3, 64, 64)
EXAMPLES = 200_000
BATCH = 256
WORKERS = 2


class MadeUp(Dataset[tuple[Tensor, int]]):
    """Pictures of noise, each made when it is asked for, in `seconds`."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        time.sleep(self.seconds)
        pixels = np.random.default_rng(number).integers(0, 256, SHAPE, dtype=np.uint8)
        return torch.from_numpy(pixels).float() / 255, number % 10


class Wide(nn.Module):
    """Model C on pictures of twice the width, which a pooling layer makes small."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.model = nn.AvgPool2d(2), cifar_cnn(activation="tanh", width=32)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.small(x))


def memory() -> float:
    """Megabytes of this process and its children, pages that they share counted once."""
    mine = os.getpid()
    children = Path(f"/proc/{mine}/task/{mine}/children").read_text().split()
    total = 0
    for process in (mine, *children):
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


def lazily(steps: int, batch: int = BATCH) -> float:
    """The most megabytes above set-up while a run trains on examples that are nowhere in memory."""
    data, model = MadeUp(EXAMPLES), Wide()
    mechanism = plan(model, data, epsilon=3.0, delta=1e-6, batch=batch, steps=steps)
    private = make_private(model, nn.CrossEntropyLoss(), data, mechanism, workers=WORKERS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, most = memory(), 0.0
    for _ in private:
        optimizer.step()
        most = max(most, memory())
    return most - before


def waiting(steps: int) -> float:
    """A step on a slow data set over the same step in memory, both as medians of wall time."""
    slow, count = MadeUp(BATCH, seconds=1e-3), BATCH
    held = tuple(
        map(torch.stack, zip(*((x, torch.tensor(y)) for x, y in map(slow.__getitem__, range(count))), strict=True))
    )
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.999, steps=steps + 2)

    def run(data: object, **options: int) -> PrivateRun:
        return make_private(Wide(), nn.CrossEntropyLoss(), data, mechanism, **options)

    runs = {"read": run(slow, workers=WORKERS), "held": run(held)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number, (name, private) in itertools.product(range(steps + 2), runs.items()):
        began = time.perf_counter()
        private.step()
        if number > 1:  # the first batch cannot be read ahead
            times[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(found) for name, found in times.items()}
    print(f"a step: {1000 * middle['read']:.0f} ms read, {1000 * middle['held']:.0f} ms in memory")
    return middle["read"] / middle["held"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print(f"memory above set-up, {EXAMPLES:,} examples, batch {BATCH}, {steps} steps: {lazily(steps):.0f} MB (bar 600)")
    print(
        f"waiting for examples of 1 ms, {WORKERS} workers: {waiting(max(5, steps // 5)):.3f} times in memory (bar 1.1)"
    )


if __name__ == "__main__":
    main()
