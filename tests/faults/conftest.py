"""Fixtures of the tests that catch faults, and the one that plants them."""

from __future__ import annotations

from tests.account.conftest import pair, planting
from tests.account.test_ledger import path
from tests.training.test_nothing_private import stage

__all__ = ["pair", "path", "planting", "stage"]
