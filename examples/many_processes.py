"""Several processes that each hold examples of their own: ``torchrun --nproc-per-node 2 examples/many_processes.py``.

As hospitals would: no example leaves its process, which sends sums of bounded gradients only. They trust each other
with those sums; the noise is one draw on the total, so that epsilon is that of one run on all examples. Process 0 pays.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

from noisette import Ledger, Mechanism, calibrate, make_private
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette.training import accuracy, process_group

EXAMPLES, DIM = 1437, 650


def main(small: bool = False) -> float:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    open_plan = Mechanism(L2(dim=DIM), Gaussian(), rate=256 / EXAMPLES, steps=2 if small else 60)
    mechanism = calibrate(open_plan, 3.0, 1e-5, examples=EXAMPLES)
    with process_group() as processes, tempfile.TemporaryDirectory() as folder:
        mine = slice(processes.rank, EXAMPLES, processes.size)  # what this process alone holds
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 10))
        books = [Ledger(Path(folder) / "ledger.jsonl", data="digits")] if processes.is_main else []
        private = make_private(model, nn.CrossEntropyLoss(), (x[mine], y[mine]), mechanism, ledger=books, sharded=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.5)
        for _ in private:
            optimizer.step()
        right = accuracy(model, x[EXAMPLES:], y[EXAMPLES:])
        if processes.is_main:
            promise = private.guarantee(delta=1e-5)
            print(f"{processes.size} processes, test accuracy {right:.1%}, {promise}")
        for book in books:
            book.close()
    return right


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--small", action="store_true")
    main(**vars(asked.parse_args()))
