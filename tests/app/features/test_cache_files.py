"""Files of the cache: any change or cut is found out, and a failed write leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from noisette.app.features import FeatureMap, Scattering, fit_cached, transform_cached
from noisette.app.features._cache_files import HEADER, build_once, check, write
from tests.support.helpers import refused

SPEC = Scattering(pictures="strokes", axes=5, count=12, scales=1, angles=2, group=1)


class Counting(FeatureMap):
    """Sees its pictures as they are, and counts them."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), torch.zeros(9), torch.eye(9), torch.ones(9), whitening=0.0)
        self.examples = 0

    def seen(self, images: torch.Tensor) -> torch.Tensor:
        self.examples += len(images)
        return nn.functional.normalize(images.flatten(1), dim=1)


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_second_time_nothing_is_computed(tmp_path: Path) -> None:
    module, images = Counting(), torch.rand(130, 1, 3, 3)
    told: list[tuple[int, int]] = []
    first = transform_cached(module, images, tmp_path, lambda done, total: told.append((done, total)))
    before = module.examples
    second = transform_cached(module, images, tmp_path)
    assert module.examples == before == 130
    assert torch.equal(first, second)
    assert torch.allclose(first, nn.functional.normalize(images.flatten(1), dim=1), rtol=2e-3)
    assert only(tmp_path).stat().st_size == HEADER + 130 * 9 * 2, "16 bits a number"
    assert told == [(50, 130), (100, 130), (130, 130)]
    assert os.stat(only(tmp_path)).st_mode & 0o077 == 0, "private pictures: for their owner only"


@pytest.mark.parametrize("place", [5, HEADER - 1, HEADER, HEADER + 7, -1])
def test_one_changed_byte_is_found_out(tmp_path: Path, place: int) -> None:
    module, images = Counting(), torch.rand(20, 1, 3, 3)
    good = transform_cached(module, images, tmp_path).clone()
    path = only(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert not check(path)
    assert torch.equal(transform_cached(module, images, tmp_path), good)


@pytest.mark.parametrize("left", [0, 10, HEADER, HEADER + 4, -1])
def test_a_file_cut_short_is_made_anew(tmp_path: Path, left: int) -> None:
    module, images = Counting(), torch.rand(20, 1, 3, 3)
    good = transform_cached(module, images, tmp_path).clone()
    path = only(tmp_path)
    path.write_bytes(path.read_bytes()[:left])
    assert torch.equal(transform_cached(module, images, tmp_path), good)


def test_other_pictures_or_another_map_have_another_file(tmp_path: Path) -> None:
    images = torch.rand(8, 1, 12, 12)
    other = images.clone()
    other[3, 0, 1, 1] += 1e-6
    maps = [spec.fit((1, 12, 12)) for spec in (SPEC, SPEC.replace(seed=1), SPEC.replace(angles=4))]
    for fixed in maps:
        for pictures in (images, other):
            transform_cached(fixed, pictures, tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


def test_whitening_needs_no_new_file(tmp_path: Path) -> None:
    images = torch.rand(8, 1, 12, 12)
    plain, white = (SPEC.replace(whitening=power).fit((1, 12, 12)) for power in (0.0, 1.0))
    found = [transform_cached(fixed, images, tmp_path) for fixed in (plain, white)]
    assert len(list(tmp_path.iterdir())) == 1
    for fixed, features in zip((plain, white), found, strict=True):
        assert torch.allclose(features, fixed(images), atol=5e-3)
    assert not torch.allclose(found[0], found[1], atol=0.05)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "f", broken())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(match="nothing can be kept"):
        write(tmp_path / "file" / "below", [b"a"])


def test_the_map_is_learnt_once(tmp_path: Path) -> None:
    first = fit_cached(SPEC, (1, 12, 12), tmp_path)
    before = only(tmp_path).stat().st_mtime_ns
    second = fit_cached(SPEC, (1, 12, 12), tmp_path)
    assert only(tmp_path).stat().st_mtime_ns == before
    for one, two in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    path = only(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    third = fit_cached(SPEC, (1, 12, 12), tmp_path)
    assert torch.equal(first.axes, third.axes)


def test_what_killed_processes_had_begun_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "x.123-0.new").write_bytes(b"half")

    def contents() -> Iterator[bytes]:
        begun = list(tmp_path.glob("*.new"))
        assert len(begun) == 1, "only what is being written now"
        write(tmp_path / "other", [b"b"])  # must leave the file of a living process alone
        assert begun == list(tmp_path.glob("*.new"))
        yield b"a"

    write(tmp_path / "f", contents())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "other"]
    assert check(tmp_path / "f")


def _make(folder: Path) -> None:
    """Append a line for every time that the file is really build_once, slowly."""

    def contents() -> Iterator[bytes]:
        with (folder / "made").open("a") as log:
            log.write("made\n")
        time.sleep(0.5)
        yield b"abc"

    build_once(folder / "cache" / "f", contents)
    assert check(folder / "cache" / "f")


def test_of_several_that_want_it_one_computes_and_the_others_wait(tmp_path: Path) -> None:
    """Threads here stand for processes: each opens the lock by itself, which is what it tells apart."""
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(_make, tmp_path) for _ in range(4)]:
            done.result(timeout=60)
    assert (tmp_path / "made").read_text() == "made\n"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["f"]


def test_a_process_that_dies_while_it_computes_is_followed_by_another(tmp_path: Path) -> None:
    dies = "import os, sys; from pathlib import Path; from noisette.app.features._cache_files import build_once\n"
    dies += "def contents():\n    yield b'ab'\n    os._exit(7)\nbuild_once(Path(sys.argv[1], 'f'), contents)"
    assert subprocess.run([sys.executable, "-c", dies, str(tmp_path)], check=False).returncode == 7
    assert len(list(tmp_path.iterdir())) == 2, "it leaves its lock and half a file"
    assert build_once(tmp_path / "f", lambda: [b"abc"])
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
