"""Faults of what recipes learn and tell: numbers, names of labels, logs, precision, public data."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from accelerate import Accelerator

from noisette.cli import loggers
from noisette.recipes import open_run
from noisette.recipes.points import Point
from noisette.recipes.settings import Settings
from noisette.recipes.tasks import Classification, Regression
from tests import test_locks
from tests.cli import test_loggers, test_regression
from tests.faults.table import by, fault
from tests.integrations import test_transformers
from tests.recipes import test_tasks


@fault("an error in units of the bounds", by(test_tasks.test_measures_are_those_of_scikit_learn))
def scaled_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Regression, "measured", lambda self, right: 1 - right)


@fault("canaries that are right", by(test_tasks.test_canaries_have_other_targets))
def right_canaries(patch: pytest.MonkeyPatch) -> None:
    for task in (Classification, Regression):
        patch.setattr(task, "wrong", lambda self, targets, draws: targets)


@fault("names of labels forgotten", by(test_regression.test_labels_keep_their_names))
def nameless(patch: pytest.MonkeyPatch) -> None:
    def without(settings: Settings, **given: Any) -> Settings:
        return Settings(**{**vars(settings), **given, "labels": None})

    patch.setattr(open_run, "replace", without)


@fault("the training loss in a log", by(test_loggers.test_trackio))
def loss_logged(patch: pytest.MonkeyPatch) -> None:
    def log(self: loggers.Logger, point: Point) -> None:
        self._write({point.label: point.epsilon, "train loss": point.train_loss or 0.0}, point.updates)

    patch.setattr(loggers.Logger, "log", log)


@fault("mixed precision unknown to the check", by(test_transformers.test_mixed_precision_goes_the_fast_way))
def unknown_precision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Accelerator, "autocast", lambda self, *_: contextlib.nullcontext())


@fault("a lock that locks nothing", by(test_locks.test_a_lock_ends_with_its_process, shared=False))
def no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(test_locks.locks, "hold", lambda file, **given: None)
