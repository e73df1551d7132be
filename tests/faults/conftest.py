"""Fixtures of the tests that catch faults, and the one that plants them."""

from __future__ import annotations

from tests.account.conftest import pair, planting
from tests.account.test_ledger import path
from tests.cli.conftest import noisette
from tests.gradients.test_memory import asked
from tests.training.test_nothing_private import stage

__all__ = ["asked", "noisette", "pair", "path", "planting", "stage"]
