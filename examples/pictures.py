"""Train on a folder of private pictures that are opened when they are drawn: ``python examples/pictures.py [FOLDER]``.

The folder has a folder for each class, with PNG or JPEG files in it; without one, small pictures are made up. BatchNorm
in the model is replaced by `noisette.fix`. Two processes read while one computes.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

from noisette import check, fix, make_private, plan
from noisette.training import StatisticsDropped

SIDE = 16


class Pictures(Dataset):
    """Paths in memory; a picture is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self.paths = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in (".png", ".jpg", ".jpeg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        path = self.paths[number]
        with Image.open(path) as picture:
            pixels = np.array(picture.convert("RGB").resize((SIDE, SIDE)))
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255 - 0.5, self.classes.index(path.parent.name)


def make_up(folder: Path, numbers: range) -> None:
    """Stripes that lie and stripes that stand, in noise."""
    for number in numbers:
        rng, kind = np.random.default_rng(number), ("lying", "standing")[number % 2]
        stripes = np.tile(((np.arange(SIDE) + rng.integers(4)) // 2 % 2 * 120)[:, None], (1, SIDE))
        pixels = (stripes if kind == "lying" else stripes.T)[:, :, None] + rng.integers(0, 120, (SIDE, SIDE, 3))
        (folder / kind).mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{number:05d}.png")


def network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, classes),
    )  # fmt: skip


def train(folder: Path, small: bool) -> nn.Module:
    data = Pictures(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatisticsDropped)  # they are fresh, and hold nothing yet
        model = fix(network(len(data.classes)))
    print(check(model, data))
    mechanism = plan(model, data, epsilon=4.0, delta=1e-5, batch=min(200, len(data)), steps=2 if small else 60)
    private = make_private(model, nn.CrossEntropyLoss(), data, mechanism, workers=0 if small else 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    for _ in private:
        optimizer.step()
    print(f"{len(data)} pictures of {len(data.classes)} classes, {private.guarantee(delta=1e-5)}")
    return model


def main(folder: Path | None = None, small: bool = False) -> float | None:
    torch.manual_seed(0)
    if folder is not None:
        train(folder, small)
        return None
    with tempfile.TemporaryDirectory() as private, tempfile.TemporaryDirectory() as public:
        make_up(Path(private), range(200 if small else 2000))
        make_up(Path(public), range(10_000, 10_200))
        model, test = train(Path(private), small), Pictures(Path(public))
        inputs, labels = zip(*(test[number] for number in range(len(test))), strict=True)
    right = float((model.eval()(torch.stack(inputs)).argmax(1) == torch.tensor(labels)).double().mean())
    print(f"accuracy on new pictures {right:.1%}")
    return right


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", nargs="?", type=Path)
    asked.add_argument("--small", action="store_true")
    main(**vars(asked.parse_args()))
