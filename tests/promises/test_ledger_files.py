"""The file under a ledger: never touched where it is none, never written by reading, and the same one all the time."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from noisette.accounting import Ledger, ledger, read_ledger
from noisette.errors import InvalidInput, LedgerError
from tests.support.helpers import refused
from tests.unit.accounting.test_ledger import ONE, path

__all__ = ["path"]

# -- what is not a ledger ----------------------------------------------------------------------------------------------

FOREIGN = (
    b"", b"{", b"\n", b"\0", b'{"epsilon": 3.0, "delta": 1e-05}', b'{"epsilon": 3.0}\n{"epsilon": 4.0}\n', b"a,b\n1,2",
    b"\x89PNG\r\n\x1a\n\0\0", b"[" * 100_000, b"1" * 10_000, "\u00e9t\u00e9".encode("latin-1"),
    b'{"chain": "c7b4", "entry": {"data": "x", "format": "noisette ledger 1", "id": "0", "time": ""}}\n',
)  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_that_is_no_ledger_is_never_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    before = path.stat()
    for opened in (
        read_ledger, Ledger, lambda path: Ledger(path, data="d"), lambda path: Ledger(path, data="d", must_exist=True),
    ):  # fmt: skip
        with refused(LedgerError, match="is not a ledger" if content else "is empty"):
            opened(path)
    after = path.stat()
    assert path.read_bytes() == content
    assert (after.st_mtime_ns, after.st_ino, after.st_size) == (before.st_mtime_ns, before.st_ino, before.st_size)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.json"]


def test_reading_opens_for_reading(path: Path) -> None:
    seen: list[int] = []
    watching = True

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(details[0]) == str(path):
            seen.append(details[2])

    sys.addaudithook(watch)
    read_ledger(path)
    watching = False  # a hook stays for good
    assert seen
    assert all(flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC) == os.O_RDONLY for flags in seen)


def test_reading_works_where_nothing_may_be_written(path: Path) -> None:
    whole = path.read_bytes()
    for content in (whole, whole[:-1], whole[:-9]):
        path.write_bytes(content)
        path.chmod(0o444)
        path.parent.chmod(0o555)
        try:
            assert sum(one.steps for one in read_ledger(path).mechanisms()) == 6
        finally:
            path.parent.chmod(0o755)
            path.chmod(0o644)
        assert path.read_bytes() == content


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(here)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, _socket, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "ledger.jsonl"
    make(path)
    for opened in (read_ledger, Ledger, lambda path: Ledger(path, data="demo")):
        with refused(LedgerError, match="is not a regular file"):
            opened(path)
    with refused(LedgerError, match="is not a regular file"):
        Ledger("/dev/null", data="demo")
    assert len(list(tmp_path.iterdir())) == 1


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("none")
    for name in ("file/ledger.jsonl", "loop", "dangling", "x" * 300, "nul\0byte"):
        for opened in (read_ledger, lambda path: Ledger(path, data="demo")):
            with refused(LedgerError, match="cannot be|is missing"):
                opened(tmp_path / name)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dangling", "file", "loop"]


def test_no_permission_is_told(path: Path) -> None:
    """In a child that is nobody, where this process is root."""
    path.chmod(0o000)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            for opened in (read_ledger, Ledger, lambda path: Ledger(path, data="demo")):
                with refused(LedgerError, match="permission denied"):
                    opened(path)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# -- while it is open --------------------------------------------------------------------------------------------------


def _copied_over(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def _grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"{}\n")


CHANGES = {
    "deleted": Path.unlink,
    "replaced": _copied_over,
    "moved": lambda path: path.rename(path.with_name("elsewhere")),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "written to": _grown,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_ledger_that_changes_while_it_is_open_pays_for_nothing(path: Path, change: str) -> None:
    with Ledger(path) as book:
        book.spend(ONE)
        CHANGES[change](path)
        left = path.read_bytes() if path.exists() else None
        with refused(LedgerError, match="moved, replaced or changed while it was open, so nothing was released"):
            book.spend(ONE)
        assert (path.read_bytes() if path.exists() else None) == left


def test_another_working_directory_is_no_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with Ledger("ledger.jsonl") as book:
        monkeypatch.chdir("/")
        book.spend(ONE)
    with refused(LedgerError, match="is closed"):
        book.spend(ONE)
    assert read_ledger(path).spent(ONE) == 6


def test_of_two_that_begin_a_ledger_the_slower_one_takes_that_of_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_absent", lambda _: True)  # looked just before the other had it done
    with refused(LedgerError, match="belongs to the people 'demo', not 'other'"):
        Ledger(path, data="other")
    with Ledger(path, data="demo") as book:
        assert book.spent(ONE) == 5
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_line_changed_in_place_is_noticed(path: Path) -> None:
    with Ledger(path, data="demo") as book:
        book.spend(ONE, 5)
        raw = path.read_bytes()
        assert b'"steps": 5' in raw
        path.write_bytes(raw.replace(b'"steps": 5', b'"steps": 1'))
        with refused(LedgerError, match="changed while it was open"):
            book.spend(ONE, 1)


def test_threads_pay_one_after_the_other(path: Path) -> None:
    with Ledger(path, data="demo") as book, ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(book.spend, ONE, 1) for _ in range(40)]:
            done.result()
    assert read_ledger(path).spent(ONE) >= 40


@pytest.mark.parametrize("steps", [2**60, 10**30, 10**15])
def test_what_could_not_be_read_off_is_not_written(path: Path, steps: int) -> None:
    with Ledger(path, data="demo") as book:
        book.spend(ONE, 5)
        before = path.read_bytes()
        with refused(InvalidInput, match="steps"):
            book.spend(ONE, steps)
        assert path.read_bytes() == before


def test_a_name_is_a_text(tmp_path: Path) -> None:
    with refused(InvalidInput, match="name of its people"):
        Ledger(tmp_path / "new.jsonl", data=5)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
