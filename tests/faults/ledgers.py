"""Faults of records and of what is shown: payments that get lost, flags that are left out, bits that tell too much."""

from __future__ import annotations

import os

import pytest

from noisette._quantization import Grid
from noisette.accounting import Ledger, ledger
from noisette.accounting._ledger_format import Record
from noisette.mechanism import Guarantee
from noisette.noise import Laplace
from noisette.training import private_run
from tests.faults.table import by, fault
from tests.promises import test_ledger_files
from tests.unit import test_private_means
from tests.unit.accounting import test_ledger_format
from tests.unit.training import test_private_run


@fault(
    "a line that was cut short counts nothing",
    by(test_ledger_format.test_no_byte_that_is_cut_off_makes_an_epsilon_smaller, payments=(1000, 9000)),
)
def dropped(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Record, tail: bytes, name: str, now: str) -> bytes:
        self.torn_steps = 0
        return b""

    patch.setattr(Record, "_mended", wrong)


@fault("a ledger opened for writing where it is only read", by(test_ledger_files.test_reading_opens_for_reading))
def opened_for_writing(patch: pytest.MonkeyPatch) -> None:
    opened = ledger._opened
    patch.setattr(ledger, "_opened", lambda path, flags: opened(path, os.O_RDWR))


@fault(
    "a ledger exchanged during a run unseen",
    by(test_ledger_files.test_a_ledger_that_changes_while_it_is_open_pays_for_nothing, change="replaced"),
    by(test_private_run.test_a_ledger_that_changes_during_a_run_ends_it, change="deleted"),
)
def exchanged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_check_place", lambda self: None)


@fault(
    "a mechanism that comes twice counted twice",
    by(test_private_run.test_a_mechanism_that_comes_twice_is_counted_once),
)
def counted_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private_run, "_paid", lambda run, own: [own.spent(mechanism) for mechanism in run])


@fault(
    "a seeded run without its stamp", by(test_private_run.test_stamps_reach_the_guarantee_the_checkpoint_and_the_ledger)
)
def unstamped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guarantee, "with_flags", lambda self, *flags: self)


@fault("raw floats released", by(test_private_means.test_no_release_proves_anybody_absent_or_present, law=Laplace))
def raw(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grid, "add_noise", lambda self, total, noise: total + noise)
