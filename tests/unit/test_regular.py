"""Only regular files are read: whatever else a path leads to is refused at once, wherever a path comes in."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noisette import _io
from noisette._regular import NotRegular, descriptor, opened
from noisette.accounting import Ledger, read_ledger
from noisette.app import datasets
from noisette.app.datasets import Dataset, column_bounds
from noisette.app.datasets import _published_files as published
from noisette.app.features import _cache_files
from noisette.app.recipes import Recipe
from noisette.app.runs import load, metrics
from noisette.app.runs.run_settings import Settings
from noisette.errors import InvalidInput, LedgerError
from tests.support.helpers import refused

DEVICE = Path("/dev/zero")


@contextmanager
def at_once() -> Iterator[None]:
    """The block ends within seconds, or the test fails: neither waits for a pipe nor reads a device without an end."""

    def late(*_: Any) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


MADE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to(DEVICE),
    "folder": Path.mkdir,
    "link to a pipe": lambda path: (os.mkfifo(f"{path}.fifo"), path.symlink_to(f"{path}.fifo")),
}


@pytest.fixture(params=MADE)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes something that is no regular file at a path."""

    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 letters
        try:
            MADE[request.param](Path(path.name))
        finally:
            os.chdir(here)

    yield make
    shutil.rmtree(tmp_path)


def test_regular_files_and_links_to_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        with opened(tmp_path / name) as file:
            assert file.read() == b"abc"


def test_whatever_else_is_refused(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "a")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with at_once(), pytest.raises(NotRegular, match="not a regular file"):
        descriptor(tmp_path / "a")
    assert before in (0, len(os.listdir("/proc/self/fd"))), "nothing stays open"


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a path and the opening of it."""
    (tmp_path / "file").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path: stat(tmp_path / "file" if path == tmp_path / "pipe" else path))
    with at_once(), pytest.raises(NotRegular):
        descriptor(tmp_path / "pipe")


@pytest.mark.parametrize("reader", [_io.raw, _io.text, _io.load, _io.table, _io.record, _io.records])
def test_files_of_ours(tmp_path: Path, odd: Callable[[Path], None], reader: Callable[[Path], Any]) -> None:
    odd(tmp_path / "a")
    with at_once(), refused(InvalidInput, match="is not a regular file"):
        reader(tmp_path / "a")


def test_arrays(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "a.npy")
    with at_once(), refused(InvalidInput, match=r"a\.npy"):
        _io.array(tmp_path / "a.npy")


def test_tables_and_their_bounds(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    table = tmp_path / "t.csv"
    odd(table)
    for read in (lambda: datasets.load(f"csv:{table}:y"), lambda: Dataset.from_csv(table, "y")):
        with at_once(), refused(InvalidInput, match=r"t\.csv cannot be read: not a regular file"):
            read()
    odd(tmp_path / "t.bounds.toml")
    with at_once(), refused(InvalidInput, match=r"t\.bounds\.toml is not a regular file"):
        column_bounds.beside(table)


def test_a_device_as_a_table() -> None:
    with at_once(), refused(InvalidInput, match="/dev/zero cannot be read: not a regular file"):
        datasets.load(f"csv:{DEVICE}:y")


def test_images(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    pytest.importorskip("PIL")
    for kind in ("cat", "dog"):
        (tmp_path / "train" / kind).mkdir(parents=True)
    odd(tmp_path / "train" / "cat" / "a.png")
    with at_once(), refused(InvalidInput, match=r"a\.png is neither a PNG nor a JPEG file"):
        Dataset.from_folder(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_published_files(tmp_path: Path, odd: Callable[[Path], None], suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    odd(path)
    with at_once(), refused(InvalidInput, match="cannot be read"):
        published.read(published.DataFile("f", 3, ""), path, tmp_path / "cache")


def test_caches(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "a.new")
    odd(tmp_path / "f")
    with at_once():
        assert not _cache_files.check(tmp_path / "f")
        _cache_files._clear(tmp_path)
        assert (tmp_path / "a.new").is_symlink() or (tmp_path / "a.new").exists(), "not ours to remove"


def test_ledgers(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "ledger")
    for read in (read_ledger, lambda path: Ledger(path, data="demo")):
        with at_once(), refused(LedgerError, match="is not a regular file"):
            read(tmp_path / "ledger")


def test_recipes_and_runs(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "mine.toml")
    with at_once(), refused(InvalidInput, match=r"mine\.toml"):
        Recipe.load(str(tmp_path / "mine.toml"))
    for name, read in (("recipe.toml", load), ("settings.json", Settings.read), ("metrics.jsonl", metrics.read)):
        odd(tmp_path / name)
        with at_once(), refused(InvalidInput, match=f"{name} is not a regular file"):
            read(tmp_path)
