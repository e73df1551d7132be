"""Faults of what recipes learn and tell: numbers, names of labels, logs, precision, public data."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from accelerate import Accelerator

from noisette.app.commands import loggers
from noisette.app.recipes.tasks import Classification, Regression
from noisette.app.runs import training_run
from noisette.app.runs.metrics import Point
from noisette.app.runs.run_settings import Settings
from tests.app.commands import test_loggers, test_regression
from tests.app.recipes import test_tasks
from tests.faults.table import by, fault
from tests.unit import test_locks
from tests.unit.integrations import test_transformers


@fault("an error in units of the bounds", by(test_tasks.test_measures_are_those_of_scikit_learn))
def scaled_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Regression, "measured", lambda self, right: 1 - right)


@fault("canaries that are right", by(test_tasks.test_canaries_have_other_targets))
def right_canaries(patch: pytest.MonkeyPatch) -> None:
    for task in (Classification, Regression):
        patch.setattr(task, "wrong_targets", lambda self, targets, draws: targets)


@fault("names of labels forgotten", by(test_regression.test_labels_keep_their_names))
def nameless(patch: pytest.MonkeyPatch) -> None:
    def without(settings: Settings, **given: Any) -> Settings:
        return Settings(**{**vars(settings), **given, "labels": None})

    patch.setattr(training_run, "replace", without)


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
    patch.setattr(test_locks._locks, "hold", lambda file, **given: None)
