"""Faults of the estimators: rows that reach too far, and fits that nobody pays for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from noisette.estimators import PrivateLogisticRegression, PrivateStandardScaler, descent
from noisette.estimators.base import Array, PrivateEstimator, Scale
from tests.faults.table import by, fault
from tests.unit.estimators import test_estimators


@fault(
    "an estimator's bounds left out",
    by(test_estimators.test_what_lies_outside_the_bounds_is_cut_off, kind=PrivateLogisticRegression),
    by(test_estimators.test_bounds_go_with_columns),
)
def unbounded(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Scale, values: Array) -> Array:
        return (values - self.middle) / self.half

    patch.setattr(Scale, "rows", wrong)


@fault(
    "a fit that its ledger does not know of",
    by(test_estimators.test_a_fit_spends_what_it_says, kind=PrivateStandardScaler),
    by(test_estimators.test_one_ledger_knows_what_a_pipeline_cost, heavy=True),
    by(test_estimators.test_a_search_pays_for_every_fit, heavy=True),
)
def unpaid(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def wrong(self: PrivateEstimator) -> Iterator[tuple[()]]:
        yield ()

    patch.setattr(PrivateEstimator, "_books", wrong)


@fault(
    "the people's ledger taken for a fit's own",
    by(test_estimators.test_a_second_fit_is_a_fit_and_is_paid_again, kind=PrivateLogisticRegression),
)
def taken(patch: pytest.MonkeyPatch) -> None:
    right = descent.make_private

    def wrong(*args: Any, ledger: Any, **options: Any) -> Any:
        return right(*args, ledger=ledger[1:] or ledger, **options)

    patch.setattr(descent, "make_private", wrong)


@fault(
    "an estimator that always has a seed",
    by(test_estimators.test_without_a_seed_no_two_are_alike, kind=PrivateLogisticRegression),
)
def seeded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrivateEstimator, "_seed", lambda self: 0)
