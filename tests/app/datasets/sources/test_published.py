from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from noisette.app.datasets.sources import Published, sources
from noisette.errors import InvalidInput
from tests.support.synthetic_datasets import COMPRESS, cifar_set, idx_set, store


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_idx_images_arrive_in_order_and_scaled(tmp_path: Path, suffix: str) -> None:
    published, contents, images, labels = idx_set()
    store(published, contents, tmp_path, suffix)
    data = published.load("", tmp_path)
    expected = torch.from_numpy(images).float()[:, None] / 255
    assert torch.equal(data.train_inputs, expected[:6])
    assert torch.equal(data.test_inputs, expected[6:])
    assert data.train_targets.tolist() == labels[:6].tolist()
    assert data.test_targets.tolist() == labels[6:].tolist()
    assert (data.name, data.classes) == (published.name, 10)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_cifar_planes_are_channels(tmp_path: Path, suffix: str) -> None:
    published, contents, records = cifar_set()
    store(published, contents, tmp_path, suffix)
    data = published.load("", tmp_path)
    assert data.train_inputs.shape == (8, 3, 32, 32)
    assert data.test_inputs.shape == (4, 3, 32, 32)
    for channel, row, column in [(0, 0, 0), (1, 3, 7), (2, 31, 31)]:
        position = 1 + 1024 * channel + 32 * row + column
        pixels = records[:, position].astype(np.float32) / 255
        assert data.train_inputs[:, channel, row, column].numpy() == pytest.approx(pixels[:8], abs=1e-7)
        assert data.test_inputs[:, channel, row, column].numpy() == pytest.approx(pixels[8:], abs=1e-7)
    assert data.train_targets.tolist() == records[:8, 0].tolist()
    assert data.test_targets.tolist() == records[8:, 0].tolist()


def test_a_missing_file_says_where_and_how_to_get_it(tmp_path: Path) -> None:
    published, contents, *_ = idx_set()
    folder = store(published, contents, tmp_path, ".gz")
    (folder / "t10k-labels.gz").unlink()
    with pytest.raises(InvalidInput) as error:
        published.load("", tmp_path)
    assert str(folder) in error.value.sentence
    assert "t10k-labels is missing" in error.value.sentence
    assert f"noisette data fetch {published.name}`" in error.value.hint


@pytest.mark.parametrize("name", ["train-images", "train-labels", "t10k-images", "t10k-labels"])
def test_a_flipped_byte_in_any_file_is_refused(tmp_path: Path, name: str) -> None:
    published, contents, *_ = idx_set()
    changed = bytearray(contents[name])
    changed[-1] ^= 1
    store(published, contents | {name: bytes(changed)}, tmp_path, ".gz")
    with pytest.raises(InvalidInput, match=f"{name}.gz does not hold the bytes"):
        published.load("", tmp_path)


def test_the_published_sets_are_consistent() -> None:
    known = [sources()[name] for name in ("mnist", "fashion-mnist", "cifar10")]
    published = [source for source in known if isinstance(source, Published)]
    assert len(published) == 3
    files = [file for source in published for file in source.files]
    assert len({file.sha256 for file in files}) == len(files) == 14
    assert all(len(file.sha256) == 64 for file in files)
    assert all(source.address.startswith("https://") for source in published)
    assert all(source.address.endswith(("/", ".tar.gz")) for source in published)
