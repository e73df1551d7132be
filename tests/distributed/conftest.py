"""Imports and first calls that take seconds, once, before children are forked."""

from __future__ import annotations

import pytest

from tests.support.child_record import one_hot_run
from tests.support.tiny_run import gaussian, trainer_of


@pytest.fixture(scope="package", autouse=True)
def _warm() -> None:
    list(trainer_of(gaussian(2, rate=1.0)).run())
    list(one_hot_run(steps=2))
