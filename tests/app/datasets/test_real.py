"""The data sets themselves: digits always, the others wherever their files are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from noisette.app.datasets import load
from noisette.app.datasets.sources import Published, sources

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
ROOT = Path(os.environ.get("NOISETTE_DATA") or BESIDE)
PUBLISHED = [source for source in sources().values() if isinstance(source, Published)]
PRESENT = ["digits", *(source.name for source in PUBLISHED if (ROOT / source.folder).is_dir())]

# Sizes, shape, mean of the training inputs (as others publish it, to four digits) and training images of each class.
FACTS = {
    "digits": (1437, 360, (1, 8, 8), None, None),
    "mnist": (60_000, 10_000, (1, 28, 28), [0.1307], [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28), [0.2860], [6000] * 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), [0.4914, 0.4822, 0.4465], [5000] * 10),
}


@pytest.mark.parametrize("name", PRESENT)
def test_real_data(name: str) -> None:
    train, test, shape, mean, counts = FACTS[name]
    data = load(name, ROOT)
    assert (len(data.train_inputs), len(data.test_inputs), data.shape, data.classes) == (train, test, shape, 10)
    assert data.train_inputs.min() == 0
    assert data.train_inputs.max() == 1
    if mean is not None:
        assert data.train_inputs.mean(dim=(0, 2, 3)).tolist() == pytest.approx(mean, abs=6e-5)
    if counts is not None:
        assert torch.bincount(data.train_targets).tolist() == counts


def test_digits_are_all_there_once() -> None:
    data, bunch = load("digits"), load_digits()
    assert (data.train_inputs * 16).sum() + (data.test_inputs * 16).sum() == bunch.images.sum()
    assert (data.test_inputs[7, 0] * 16).numpy() == pytest.approx(bunch.images[35])
    assert data.test_targets[7] == bunch.target[35]
    assert (data.train_inputs[4, 0] * 16).numpy() == pytest.approx(bunch.images[6])
    assert torch.bincount(data.test_targets, minlength=10).min() >= 25


def test_digits_do_not_change() -> None:
    first, second = load("digits"), load("digits")
    assert torch.equal(first.train_inputs, second.train_inputs)
    assert torch.equal(first.test_targets, second.test_targets)
