"""The clipped sum of one Linear layer on sequences, by rows and by Gram matrices: ``python benchmarks/rows.py``.

Medians of CPU milliseconds on one thread, interleaved, beside the gradient of the whole batch as plain SGD has it. What
they mean is on the page about performance.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from torch import Tensor

from noisette._gradients.fused_clip import rows_at_a_time
from noisette._native.cpu import new_layers
from noisette.encoders import L2

SHAPES = [(32, 64, 64, 64), (32, 64, 64, 256), (16, 128, 256, 256), (16, 128, 256, 1024), (8, 64, 512, 2048)]
ROUNDS = 9


def by_rows(x: Tensor, g: Tensor, total: Tensor) -> None:
    """A product in float32 for each example, norms of these numbers, and their sum in float64."""
    kernel = L2(dim=total.numel()).kernel()
    assert kernel is not None
    few = min(len(x), rows_at_a_time(total.numel()))
    rows = torch.empty(few, total.numel())
    for start in range(0, len(x), few):
        some = slice(start, start + few)
        made = rows[: len(x[some])]
        torch.bmm(g[some].transpose(1, 2), x[some], out=made.view(-1, g.shape[2], x.shape[2]))
        layers = new_layers()
        layers.rows(made, 0)
        kernel.clip(layers, total, torch.zeros(len(made), dtype=torch.float64))


def by_gram(x: Tensor, g: Tensor, total: Tensor, dtype: torch.dtype) -> None:
    """Norms from products over tokens, then a weighted sum in float64."""
    a, b = x.to(dtype), g.to(dtype)
    squares = ((a @ a.transpose(1, 2)) * (b @ b.transpose(1, 2))).sum(dim=(1, 2)).double()
    weighted = g.double() / squares.clamp(min=1).sqrt()[:, None, None]
    total.view(g.shape[2], x.shape[2]).addmm_(weighted.flatten(0, 1).T, x.double().flatten(0, 1))


def main() -> None:
    torch.set_num_threads(1)
    print("examples, tokens, in, out: plain, rows, Gram in float64, Gram in float32")
    for count, tokens, inner, outer in SHAPES:
        x, g = torch.randn(count, tokens, inner), torch.randn(count, tokens, outer)
        total = torch.zeros(inner * outer, dtype=torch.float64)
        ways = (
            lambda x, g, total: torch.mm(g.flatten(0, 1).T, x.flatten(0, 1)),  # noqa: ARG005
            by_rows,
            partial(by_gram, dtype=torch.float64),
            partial(by_gram, dtype=torch.float32),
        )
        times = np.zeros((ROUNDS + 1, len(ways)))
        for row in times:
            for column, way in enumerate(ways):
                began = time.process_time()
                way(x, g, total)
                row[column] = time.process_time() - began
        print(f"{count}, {tokens}, {inner}, {outer}:", *(f"{1e3 * t:.2g}" for t in np.median(times[1:], axis=0)))


if __name__ == "__main__":
    main()
