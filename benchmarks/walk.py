"""What one step walks through: calls into the package, and the files that they are in.

    python benchmarks/walk.py        # a table of files, the functions that are called most, and the totals

The model is an MLP 64-64-10 with a batch of 64, L2 clipping and Gaussian noise. Counts depend on no clock. A generator
counts each time that it goes on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import noisette
from noisette import Mechanism, make_private
from noisette.encoders import L2
from noisette.noise import Gaussian

PACKAGE = Path(noisette.__file__).parent


def step_of_an_mlp() -> Callable[[], None]:
    """Rate 1 on a data set of one batch, so that a step has exactly 64 examples.

    The first steps are behind it: some things are made in them and kept, and others are looked at in them only.
    """
    generator = torch.Generator().manual_seed(0)
    data = torch.rand(64, 64, generator=generator), torch.randint(10, (64,), generator=generator)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    dim = sum(p.numel() for p in model.parameters())
    mechanism = Mechanism(L2(dim=dim), Gaussian(scale=1.1), rate=1.0, steps=1000)
    private = make_private(model, nn.CrossEntropyLoss(), data, mechanism)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        private.step()
        optimizer.step()

    for _ in range(8):
        step()
    return step


def walked(step: Callable[[], object]) -> Counter[tuple[str, str]]:
    """How often each function of the package, by its file and name, is called in a step."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls[path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    torch.set_num_threads(1)
    step = step_of_an_mlp()
    calls = walked(step)
    files: Counter[str] = Counter()
    for (file, _), count in calls.items():
        files[file] += count
    width = max(map(len, files))
    print(f"{'file':{width}s}  calls  functions")
    for file, count in files.most_common():
        print(f"{file:{width}s} {count:6d} {sum(one == file for one, _ in calls):10d}")
    print("\ncalled most:")
    for (file, name), count in calls.most_common(10):
        print(f"  {count:4d}  {file}: {name}")
    print(f"\n{calls.total()} calls of {len(calls)} functions in {len(files)} files")


if __name__ == "__main__":
    main()
