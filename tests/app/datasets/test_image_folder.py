from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from noisette.app.datasets import Dataset, load
from noisette.errors import InvalidInput
from tests.support.helpers import assert_well_formed

PIXELS = np.random.default_rng(5).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def save(root: Path, name: str, pixels: np.ndarray = PIXELS) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in ("train/dog/b.png", "train/dog/a.png", "train/cat/1.png", "test/dog/9.png"):
        save(tmp_path, name, PIXELS + np.uint8(len(name)))
    (tmp_path / "train" / "dog" / ".hidden").write_text("left alone")
    return tmp_path


def test_classes_are_folders_in_order(images: Path) -> None:
    data = Dataset.from_folder(images)
    assert data.train_targets.tolist() == [0, 1, 1]  # cat, dog, dog
    assert data.test_targets.tolist() == [1]
    assert (data.shape, data.classes, data.name) == ((3, 6, 8), 2, images.name)
    expected = (PIXELS + np.uint8(len("train/cat/1.png"))).transpose(2, 0, 1) / 255
    assert data.train_inputs[0].numpy() == pytest.approx(expected, abs=1e-6)
    assert load(f"folder:{images}").train_inputs.equal(data.train_inputs)


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    for kind in ("a", "b"):
        save(tmp_path, f"train/{kind}/x.png", PIXELS[:, :, 0])
    data = Dataset.from_folder(tmp_path)
    assert data.shape == (1, 6, 8)
    assert data.train_inputs[0, 0].numpy() == pytest.approx(PIXELS[:, :, 0] / 255, abs=1e-6)
    assert len(data.test_inputs) == 0


def test_jpeg_is_read(tmp_path: Path) -> None:
    flat = np.full((16, 16, 3), 90, dtype=np.uint8)
    for name in ("train/a/x.jpg", "train/b/x.JPEG"):
        save(tmp_path, name, flat)
    assert Dataset.from_folder(tmp_path).train_inputs.numpy() == pytest.approx(90 / 255, abs=0.01)


@pytest.mark.parametrize(
    ("name", "pixels", "match"),
    [
        ("train/dog/c.png", PIXELS[:5], "is 3x5x8 where the images before it are 3x6x8"),
        ("train/dog/c.png", PIXELS[:, :, 0], "is 1x6x8 where the images before it are 3x6x8"),
        ("train/dog/c.png", PIXELS[:, :, 0].astype(np.uint16), "pixel format"),
        ("test/cow/c.png", PIXELS, "class 'cow' that is not among the training classes"),
        ("test/dog/9.png", PIXELS[:4, :4], "test examples are 3x4x4, training examples are 3x6x8"),
        ("train/dog/c.gif", PIXELS[:, :, 0], "neither a PNG nor a JPEG"),
    ],
)
def test_images_that_do_not_fit_are_refused(images: Path, name: str, pixels: np.ndarray, match: str) -> None:
    save(images, name, pixels)
    with pytest.raises(InvalidInput, match=match):
        Dataset.from_folder(images)


@pytest.mark.parametrize("content", [b"", b"no image at all", None])
def test_damaged_images_are_refused(images: Path, content: bytes | None) -> None:
    path = images / "train" / "dog" / "a.png"
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    with pytest.raises(InvalidInput, match=r"a\.png is not an image that can be read"):
        Dataset.from_folder(images)


def test_other_formats_in_disguise_are_refused(images: Path) -> None:
    Image.fromarray(PIXELS).save(images / "train" / "dog" / "c.png", format="BMP")
    with pytest.raises(InvalidInput, match="is not an image that can be read"):
        Dataset.from_folder(images)


def test_empty_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        Dataset.from_folder(tmp_path / "none")
    (tmp_path / "train").mkdir()
    with pytest.raises(InvalidInput, match="no folder in it"):
        Dataset.from_folder(tmp_path)
    (tmp_path / "train" / "cat").mkdir()
    with pytest.raises(InvalidInput, match="holds no image"):
        Dataset.from_folder(tmp_path)


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    order = np.random.default_rng(2).permutation(20)
    for number in order:
        save(tmp_path, f"train/a/{number:02d}.png", np.full((2, 2), number, dtype=np.uint8))
    save(tmp_path, "train/b/0.png", np.full((2, 2), 99, dtype=np.uint8))
    values = Dataset.from_folder(tmp_path).train_inputs[:, 0, 0, 0] * 255
    assert values.round().tolist() == [*range(20), 99]


def test_any_bytes_are_a_picture_or_an_error(images: Path) -> None:
    """Flipped bytes in a PNG and in a JPEG: a picture of another look, or an error that names the file."""
    rng = random.Random(0)
    path = images / "train" / "dog" / "a.png"
    for form in ("PNG", "JPEG"):
        Image.fromarray(PIXELS).save(path, format=form)
        whole = path.read_bytes()
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            try:
                Dataset.from_folder(images)
            except InvalidInput as error:
                assert_well_formed(error)
