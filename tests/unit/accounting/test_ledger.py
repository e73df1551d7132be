"""The ledger: spending is on disk before it is used, adds up, and cannot be edited, cut or shared unseen."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noisette import Mechanism
from noisette._locks import hold
from noisette.accounting import Ledger, guarantee, ledger, read_ledger
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput, LedgerError
from noisette.noise import Gaussian, Laplace
from tests.support.helpers import refused

ONE = Mechanism(L2(dim=9), Gaussian(scale=2.0), rate=0.1, steps=50)
TWO = Mechanism(Ranked(dim=9), Laplace(scale=3.0), rate=0.2, steps=20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three entries."""
    place = tmp_path / "ledger.jsonl"
    with Ledger(place, data="demo") as book:
        book.spend(ONE, 2)
        book.spend(TWO)
        book.spend(ONE, 3)
    return place


def test_spending_adds_up_and_is_read_back(path: Path) -> None:
    with Ledger(path) as book:
        assert (book.spent(ONE), book.spent(TWO), book.spent(ONE.replace(steps=51))) == (5, 1, 0)
        assert book.mechanisms() == (ONE.replace(steps=5), TWO.replace(steps=1))
        assert book.population_name == "demo"
        book.spend(TWO, 4)
        assert book.spent(TWO) == 5
    with Ledger(path, data="demo", must_exist=True) as book:
        assert book.spent(TWO) == 5


def test_the_guarantee_of_a_ledger_is_that_of_the_union(path: Path) -> None:
    union = (ONE.replace(steps=5), TWO.replace(steps=1))
    with Ledger(path) as book:
        assert guarantee(book.mechanisms(), 1e-5) == guarantee(union, 1e-5)
    assert guarantee(union, 1e-5).epsilon > guarantee(union[:1], 1e-5).epsilon


def test_every_line_is_json_and_chained(path: Path) -> None:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record.get("steps") for record in records] == [None, None, 2, None, 1, None, 3]
    assert [record.get("most") for record in records] == [None, 2, None, 1, None, 3, None]
    assert len({record["chain"] for record in records}) == 7
    with Ledger(path) as book:
        assert all(book.contains_entry(record["chain"]) for record in records)
        assert book.tip == records[-1]["chain"]
        assert not book.contains_entry("f" * 16)


def test_a_plan_is_written_only_where_the_one_in_force_does_not_do(path: Path) -> None:
    lines = path.read_bytes().count(b"\n")
    with Ledger(path) as book:
        book.spend(ONE, 3)
        book.spend(ONE, 1)
        assert path.read_bytes().count(b"\n") == lines + 2
        book.spend(ONE, 4)
        book.spend(ONE, 4, flags=["unsafe"])
        book.spend(ONE, 4, flags=["unsafe"])
        assert path.read_bytes().count(b"\n") == lines + 7


def test_stamps_of_a_run_stay_with_what_was_spent(path: Path) -> None:
    with Ledger(path) as book:
        assert (book.flags, book.guarantee(1e-5).flags) == ((), ())
        book.spend(ONE, flags=["unsafe", "reproducible"])
        book.spend(ONE)
        with refused(InvalidInput, match="not a stamp"):
            book.spend(ONE, flags=["harmless"])
    for record in (read_ledger(path), Ledger(path)):
        assert record.guarantee(1e-5) == guarantee(record.mechanisms(), 1e-5).with_flags("reproducible", "unsafe")
        assert "not for release" in str(record.guarantee(1e-5))
    record.close()


def test_an_entry_is_synced_before_spend_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment of the sync the whole line is in the file, and `spend` is still under way."""
    sizes: list[int] = []
    with Ledger(path) as book:
        before = path.stat().st_size
        monkeypatch.setattr(ledger.os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
        book.spend(ONE)
        assert sizes == [path.stat().st_size]
        assert sizes[0] > before


# -- what must be refused ----------------------------------------------------------------------------------------------


def test_a_changed_byte_is_refused_wherever_it_is(path: Path) -> None:
    """Every bit of every byte in turn would take minutes; one bit of each, all eight in rotation, is the same code."""
    whole = path.read_bytes()
    for position in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        path.write_bytes(changed)
        with refused(LedgerError), Ledger(path):
            pytest.fail(f"byte {position} was changed unseen")
        assert path.read_bytes() == changed


def test_a_line_that_is_gone_moved_or_doubled_is_refused(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    wrong = [[*lines, b"{}\n"], [*lines, b"[]\n"], [*lines, b"\n"], [lines[0], b"\n", *lines[1:]]]
    for n in range(len(lines)):
        wrong.append([*lines[: n + 1], lines[n], *lines[n + 1 :]])
        if n < len(lines) - 1:
            wrong.append([*lines[:n], *lines[n + 1 :]])
            wrong.append([*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]])
    for case in wrong:
        path.write_bytes(b"".join(case))
        with refused(LedgerError, match="edited or is damaged|is not a ledger"), Ledger(path):
            pytest.fail("opened")
        with refused(LedgerError):
            read_ledger(path)
        assert path.read_bytes() == b"".join(case)


def test_a_last_line_that_is_gone_is_known_by_its_head(path: Path) -> None:
    """The chain alone cannot tell; whoever kept the head can, and checkpoints do."""
    with Ledger(path) as book:
        head = book.tip
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with Ledger(path) as book:
        assert not book.contains_entry(head)


# -- names and places --------------------------------------------------------------------------------------------------


def test_another_data_set_is_refused(path: Path) -> None:
    with refused(LedgerError, match="belongs to the people 'demo', not 'other'"), Ledger(path, data="other"):
        pytest.fail("opened")


def test_a_missing_ledger_is_refused_and_not_made(tmp_path: Path) -> None:
    with refused(LedgerError, match="missing"):
        Ledger(tmp_path / "none.jsonl", must_exist=True)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_open_scale_is_refused_before_anything_is_written(path: Path) -> None:
    size = path.stat().st_size
    with Ledger(path) as book:
        for wrong in (ONE.replace(noise=Gaussian()),):
            with refused():
                book.spend(wrong)
        for steps in (0, -1, 1.5, True):
            with refused(InvalidInput):
                book.spend(ONE, steps)  # type: ignore[arg-type]
    assert path.stat().st_size == size


def test_two_at_once_are_refused(path: Path) -> None:
    script = f"from noisette.accounting import Ledger\nLedger({str(path)!r})"
    with Ledger(path) as book:
        for again in (Ledger, read_ledger):  # a refusal changes nothing for the next one
            with refused(LedgerError, match="in use by this process") as caught:
                again(path)
            assert "close()" in caught.value.hint
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert other.returncode == 1
        assert "in use by another process" in other.stderr
        book.spend(ONE)
    with Ledger(path) as book:
        assert book.spent(ONE) == 6
    with path.open("rb") as file:  # as another process would
        hold(file.fileno())
        with refused(LedgerError, match="in use by another process"):
            Ledger(path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(LedgerError, match="cannot be written"):
        Ledger(tmp_path / "file" / "ledger.jsonl", data="demo")


@pytest.mark.parametrize("room", [0, 1, 60])
def test_a_full_disk_pays_nothing_and_loses_nothing(path: Path, room: int) -> None:
    """The limit on file sizes stands in for the disk: a write beyond it is cut short or fails."""
    before = path.read_bytes()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger(path) as book:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
            with refused(LedgerError, match="cannot be written"):
                book.spend(ONE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)
        assert path.read_bytes() == before
        assert book.spent(ONE) == 5
        book.spend(ONE)  # room again: the chain goes on
    with Ledger(path) as book:
        assert book.spent(ONE) == 6


def test_an_interrupt_within_a_payment_leaves_the_chain_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    before = path.read_bytes()
    with Ledger(path) as book:
        with monkeypatch.context() as patch:
            patch.setattr(ledger.os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                book.spend(ONE)
        assert path.read_bytes() == before
        book.spend(ONE)
    with Ledger(path) as book:
        assert book.spent(ONE) == 6


def test_no_line_tells_anything_but_public_facts(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines()):
        keys = set(json.loads(line)) - {"chain", "time", "hash", "flags"}
        assert keys <= ({"format", "data", "id"} if number == 0 else {"steps", "most", "mechanism", "grid"})
