"""Our files: what `save` wrote comes back, whatever else is there is refused with the name of the file."""

from __future__ import annotations

import io
import os
import random
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisette import _io
from noisette.errors import InvalidInput
from tests.support.helpers import refused

STATE = {"weights": torch.arange(12.0).reshape(3, 4), "updates": 3, "name": "x"}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    _io.save(tmp_path / "a.pt", STATE)
    found = _io.load(tmp_path / "a.pt")
    assert _io.alike(STATE, found)
    assert torch.equal(found["weights"], STATE["weights"])


def test_any_flipped_bit_of_a_part_is_found(tmp_path: Path) -> None:
    """torch looks at no checksum, so that a changed weight would pass. Only padding and dates may change unseen."""
    path = tmp_path / "a.pt"
    _io.save(path, STATE)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        parts = [(info.header_offset + 30 + len(info.filename), info.file_size) for info in archive.infolist()]
    start = whole.index(STATE["weights"].numpy().tobytes())  # type: ignore[attr-defined]
    rng = random.Random(0)
    for _ in range(200):
        place = start + rng.randrange(48)
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        with refused(InvalidInput, match="a.pt is damaged"):
            _io.parse(bytes(changed), path)
    assert parts


def test_a_compressed_archive_is_not_unpacked(tmp_path: Path) -> None:
    """A file of a few kilobytes could ask for any amount of memory."""
    _io.save(tmp_path / "a.pt", {"x": torch.zeros(1000)})
    packed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with refused(InvalidInput, match="damaged"):
        _io.parse(packed.getvalue(), Path("a.pt"))


@pytest.mark.parametrize("text", ["NaN", '{"a": NaN}', "[1]", "3", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with refused(InvalidInput, match=r"a\.json is damaged"):
        _io.record(tmp_path / "a.json")
    with refused(InvalidInput, match=r"a\.json is damaged"):
        _io.records(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["= 1", "a = [" * 100_000, "a = " + "1" * 5000, "a = 1\na = 2"])
def test_toml_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with refused(InvalidInput, match=r"a\.toml is (not|damaged)"):
        _io.table(tmp_path / "a.toml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    for reader in (_io.raw, _io.text, _io.load, _io.record, _io.array):
        with refused(InvalidInput):
            reader(tmp_path / "a")


def test_a_foreign_model_is_refused() -> None:
    model = nn.Linear(3, 2)
    good = model.state_dict()
    wrong: list[Any] = [
        None, [], {}, 3, "text", good | {"more": torch.zeros(1)}, {"weight": good["weight"]}, good | {"bias": None},
        good | {"bias": torch.zeros(3)}, good | {"bias": good["bias"].double()}, good | {"bias": good["bias"].cfloat()},
    ]  # fmt: skip
    for state in wrong:
        with refused(InvalidInput, match="holds another model"):
            _io.fill(model, state, Path("model.pt"))
    _io.fill(model, good, Path("model.pt"))


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for array in (np.zeros((2, 3)), np.ones(4, np.uint8), np.full(2, 1e300), np.zeros((2, 2), ">f8"), np.array([True])):
        np.save(path, array)
        assert _io.array(path).shape == array.shape
    np.save(path, np.zeros((10, 10)))
    whole = path.read_bytes()
    huge = whole.replace(b"(10, 10), ", b"(10**9,), ").replace(b"(10, 10)", b"(99999999,)"[:8])
    for data in (b"", b"abc", whole[:-1], whole[:40], whole.replace(b"'<f8'", b"'<c8'"), huge, b"PK\3\4"):
        path.write_bytes(data)
        with refused(InvalidInput, match="is not an array of numbers"):
            _io.array(path)
    for other in (np.array(["a"]), np.array([1j]), np.zeros(2, [("a", "f8")])):
        np.save(path, other)
        with refused(InvalidInput, match="is not an array of numbers"):
            _io.array(path)
    with refused(InvalidInput, match="there is no file"):
        _io.array(tmp_path / "none.npy")


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "a", tmp_path / "none" / "a", tmp_path / "folder", tmp_path / ("b" * 300)):
        with refused(InvalidInput, match="cannot be written"):
            _io.write(path, b"data")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"], "no litter"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    _io.write(path, b"one")
    _io.write(path, b"two")
    assert path.read_bytes() == b"two"

    def stopped() -> None:
        with _io.replacing(path) as file:
            file.write(b"half of th")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """Each has a file of its own until it is whole: of two at once, the last to end stays."""
    path = tmp_path / "file"
    with _io.replacing(path) as outer:
        outer.write(b"long and first")
        _io.write(path, b"short")
        assert path.read_bytes() == b"short"
    assert path.read_bytes() == b"long and first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_another_has_begun_to_write_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were two names ever the same, the second writer is refused, and the first one's file is whole."""
    path = tmp_path / "file"
    with monkeypatch.context() as patch:  # undone before a planted fault is
        patch.setattr(_io, "_beside", lambda path: path.with_name("taken.new"))
        with _io.replacing(path) as file:
            file.write(b"first")
            with refused(InvalidInput, match="file exists"):
                _io.write(path, b"second")
    assert path.read_bytes() == b"first"


def test_permissions_are_the_users_choice(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        _io.write(tmp_path / "open", b"")
        with _io.replacing(tmp_path / "closed", mode=0o600):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o600
