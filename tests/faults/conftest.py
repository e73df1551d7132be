"""Fixtures of the tests that catch faults, and the one that plants them."""

from __future__ import annotations

from tests.app.commands.conftest import noisette
from tests.promises.test_gradient_memory import asked
from tests.promises.test_nothing_private import stage
from tests.unit.accounting.conftest import pair, planting
from tests.unit.accounting.test_ledger import path

__all__ = ["asked", "noisette", "pair", "path", "planting", "stage"]
