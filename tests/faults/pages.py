"""Faults of statements and pages: what they would give away, promise too much, or write over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from noisette import Guarantee, _guarantee
from noisette.app.reports import html, index, run, statement
from noisette.app.reports.run import Run
from noisette.app.reports.statement import Fact, Statement
from noisette.app.runs.metrics import Point
from tests.app.reports import test_html, test_run, test_statement
from tests.faults.table import by, fault
from tests.unit import test_guarantee

STAMPS = by(
    test_statement.test_stamps_come_first_in_every_form,
    options={"unsafe": True, "seed": 1},
    flags=["reproducible", "unsafe"],
)
OTHERS = by(test_run.test_files_of_others_are_not_written_over)


@fault(
    "a training loss on a page",
    by(test_html.test_no_page_tells_a_training_loss, says="a training loss is told"),
    by(
        test_html.test_neighbours_have_the_same_pages,
        says="a page tells neighbours apart",
        heavy=True,
        options=("--unsafe-show-private-metrics",),
    ),
)
def loss_told(patch: pytest.MonkeyPatch) -> None:
    about = Statement._about

    def tells(self: Statement) -> tuple[Fact, ...]:
        return (*about(self), ("Training loss", f"{self.run.points[-1].train_loss!r}"))

    patch.setattr(Statement, "_about", tells)


@fault("a page without its flags", STAMPS)
def stamps_lost(patch: pytest.MonkeyPatch) -> None:
    promise = run._promise

    def bare(*arguments: Any) -> Guarantee:
        told = promise(*arguments)
        return Guarantee(told.epsilon, told.delta, told.accountant, "bound", told.mechanism_hash, told.basis)

    patch.setattr(run, "_promise", bare)


@fault("a statement that leaves its cautions out", STAMPS)
def no_cautions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(statement, "cautions", lambda flags: tuple("Fine." for _ in flags))


@fault(
    "guarantee.json believed without its ledger",
    by(test_run.test_a_run, kind="that promises more than was paid"),
    by(test_run.test_a_run, kind="of another mechanism"),
)
def file_believed(patch: pytest.MonkeyPatch) -> None:
    def believes(folder: Path, *_: object) -> Guarantee:
        told = json.loads((folder / "guarantee.json").read_text())
        return Guarantee(**(told_fields(told) | {"flags": tuple(told["flags"])}))

    patch.setattr(run, "_promise", believes)


def told_fields(told: dict[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in Guarantee.__dataclass_fields__}


@fault("numbers of a statement rounded to the nearest", by(test_guarantee.test_numbers_are_rounded_to_the_safe_side))
def rounded_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(test_guarantee, "percent", lambda share: f"{100 * share:.1f}%")


@fault(
    "the best test of a pair at half its strength",
    by(test_guarantee.test_a_pair_leaves_what_the_trade_off_leaves, epsilon=1.0, delta=1e-5),
    by(test_guarantee.test_no_test_of_a_gaussian_finds_more_than_is_told, scale=1.0),
)
def weak_pair(patch: pytest.MonkeyPatch) -> None:
    honest = _guarantee.attack_power
    patch.setattr(test_guarantee, "attack_power", lambda epsilon, delta, alarms: honest(epsilon / 2, delta, alarms))


@fault("a statement of one pair instead of the curve", by(test_statement.test_numbers_are_those_of_the_whole_curve))
def pair_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Run, "found", lambda self, alarms: _guarantee.attack_power(self.promise.epsilon, self.promise.delta, alarms)
    )


@fault("a stranger's words as HTML", by(test_html.test_a_page_stands_alone))
def unescaped(patch: pytest.MonkeyPatch) -> None:
    class Trusting(jinja2.Environment):
        def __init__(self, **options: Any) -> None:
            super().__init__(**(options | {"autoescape": False}))

    patch.setattr(html, "Environment", Trusting)


@fault("a page over a file of somebody else", OTHERS)
def written_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(html, "check_place", lambda path: None)


@fault("an unfinished run that is reported", by(test_run.test_an_unfinished_run))
def reported_early(patch: pytest.MonkeyPatch) -> None:
    read = run.read_points
    patch.setattr(run, "read_points", lambda folder: [_done(point) for point in read(folder)])


def _done(point: Point) -> Point:
    return replace(point, total=point.paid)


@fault("an index that forgets what a run spent", by(test_html.test_an_index))
def forgotten(patch: pytest.MonkeyPatch) -> None:
    honest = index._purses
    patch.setattr(index, "_purses", lambda books: honest(books[-1:]))
