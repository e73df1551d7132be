"""What a ledger's lines say: a last line that was cut short never makes an epsilon smaller, and no crash is fatal."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisette.accounting import Ledger, read_ledger
from noisette.accounting._ledger_format import encode_entry
from noisette.errors import LedgerError
from tests.support.helpers import refused
from tests.unit.accounting.test_ledger import ONE, TWO, path

__all__ = ["path"]


def test_a_payment_beyond_its_plan_is_refused(path: Path) -> None:
    """With hashes that fit: a torn line is priced by its plan, so that no line may have paid for more."""
    with Ledger(path) as book:
        line = encode_entry(book.tip, {"steps": 4, "hash": ONE.hash, "time": ""})
        other = encode_entry(book.tip, {"steps": 1, "hash": TWO.hash, "time": ""})
    whole = path.read_bytes()
    for more in (line, other):
        path.write_bytes(whole + more)
        with refused(LedgerError, match="line 8 of the ledger"):
            read_ledger(path)


def test_a_payment_cut_short_counts_in_full_at_every_length(path: Path) -> None:
    whole = path.read_bytes()
    before = read_ledger(path).guarantee(1e-5).epsilon
    last = len(whole.splitlines(keepends=True)[-1])
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        record = read_ledger(path)
        assert (record.spent(ONE), record.spent(TWO), record.torn_steps) == (5, 1, 3)
        assert path.read_bytes() == whole[:-cut], "reading does not write"
        with Ledger(path) as book:
            assert (book.spent(ONE), book.spent(TWO), book.torn_steps) == (5, 1, 3)
            book.spend(TWO)  # and it goes on from there
        again = read_ledger(path)
        assert (again.spent(ONE), again.spent(TWO)) == (5, 2)
        assert again.torn_steps == (None if cut == 1 else 3), "what was guessed is still told later on"
    assert record.guarantee(1e-5).epsilon == before


@pytest.mark.parametrize("payments", [(1000, 9000), (9000, 1000), (1, 1, 7, 2), (5, 5, 5)])
def test_no_byte_that_is_cut_off_makes_an_epsilon_smaller(tmp_path: Path, payments: tuple[int, ...]) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, data="demo") as book:
        for steps in payments:
            book.spend(ONE, steps)
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        path.write_bytes(whole[:-cut])
        record = read_ledger(path)
        assert record.spent(ONE) >= sum(payments)
        assert record.torn_steps is not None
        if cut == 1:
            assert record.spent(ONE) == sum(payments), "only the end of the line is missing"


def test_a_plan_cut_short_paid_for_nothing(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    whole, plan = b"".join(lines[:5]), lines[5]
    for length in range(len(b'{"most": '), len(plan), 4):
        path.write_bytes(whole + plan[:length])
        assert (read_ledger(path).spent(ONE), read_ledger(path).torn_steps) == (2, 0)
        with Ledger(path) as book:
            assert (book.spent(ONE), book.spent(TWO)) == (2, 1)
            book.spend(ONE)
        assert read_ledger(path).spent(ONE) == 3
    path.write_bytes(whole + plan[:2])  # it may as well be the beginning of a payment
    assert (read_ledger(path).spent(TWO), read_ledger(path).torn_steps) == (2, 1)


def test_lines_that_were_cut_short_one_after_another_are_all_told(path: Path) -> None:
    for times in range(1, 4):
        path.write_bytes(path.read_bytes()[:-9])
        assert (read_ledger(path).spent(ONE), read_ledger(path).torn_steps) == (5 + 3 * (times - 1), 3 * times)
        with Ledger(path) as book:
            assert book.torn_steps == 3 * times
            book.spend(ONE, 2)


def test_space_that_was_set_aside_and_not_written_is_cut_short_too(path: Path) -> None:
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for kept in (0, 1, 30):
        path.write_bytes(whole[: len(whole) - last + kept] + bytes(500))
        with Ledger(path) as book:
            assert (book.spent(ONE), book.torn_steps) == (5, 3)
        assert bytes(1) not in path.read_bytes()
        assert read_ledger(path).spent(ONE) == 5


def test_what_no_crash_leaves_behind_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for tail in (b"x", b"{}", b'{"steps" : 1', whole.splitlines()[-1] * 2, b"\0{"):
        path.write_bytes(whole + tail)
        for opened in (read_ledger, Ledger):
            with refused(LedgerError, match="the last line of the ledger"):
                opened(path)
        assert path.read_bytes() == whole + tail


def test_a_crash_while_a_cut_line_is_mended_loses_nothing(path: Path) -> None:
    """The new line is written over the old one: whatever part of it is on disk, at least as much counts."""
    whole = path.read_bytes()
    start = len(whole) - len(whole.splitlines(keepends=True)[-1])
    for left in (1, 20, len(whole) - start - 2):
        path.write_bytes(whole[: start + left])
        Ledger(path).close()
        mended = path.read_bytes()
        assert mended[:start] == whole[:start]
        for written in range(0, len(mended) - start, 5):
            torn = mended[: start + written] + whole[start + written : start + left]
            path.write_bytes(torn)
            assert read_ledger(path).spent(ONE) >= 5
            with Ledger(path) as book:
                assert book.spent(ONE) >= 5


def test_a_first_line_cut_short(path: Path) -> None:
    """It never comes from a crash: a ledger appears with its first line in it."""
    first = path.read_bytes().splitlines(keepends=True)[0]
    for cut in range(2, len(first) + 1):
        path.write_bytes(first[:-cut])
        for opened in (read_ledger, Ledger, lambda path: Ledger(path, data="demo")):
            with refused(LedgerError, match="is not a ledger|is empty"):
                opened(path)
        assert path.read_bytes() == first[:-cut]
    path.write_bytes(first[:-1])
    assert read_ledger(path).mechanisms() == ()
    with Ledger(path, data="demo") as book:
        book.spend(ONE)
    assert read_ledger(path).spent(ONE) == 1
