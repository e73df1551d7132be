"""Faults of a search: a price that is too low, and choosing by what was not paid for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noisette import Mechanism
from noisette.accounting import _best_of_price, _truncation, ledger
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import GeometricNumTrials, NumTrials
from noisette.app.runs import holdout
from noisette.app.tuning import plan as planning
from noisette.app.tuning import search as tuning
from noisette.app.tuning import trial
from noisette.training import accuracy
from tests.app.tuning import test_neighbours, test_search
from tests.faults.table import by, fault
from tests.unit.accounting import test_best_of_price, test_float_error, test_num_trials


@fault(
    "K fixed",
    by(
        test_search.test_the_number_of_runs_follows_the_law,
        trials=GeometricNumTrials(3),
        says="does not follow its law",
    ),
)
def always_the_mean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GeometricNumTrials, "draw", lambda self, generator: round(self.mean))


@fault("all scores shown", by(test_search.test_nothing_private_is_public))
def scores_published(patch: pytest.MonkeyPatch) -> None:
    publish = tuning._publish

    def wrong(folder: Path, plan: planning.Plan, places: Any) -> None:
        publish(folder, plan, places)
        path = folder / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"scores": [trial.score_at(one) for one in places]}))

    patch.setattr(tuning, "_publish", wrong)


PRICED = by(
    test_search.test_runs_have_the_noise_that_the_whole_search_asks_for, says="the price of a search is another one"
)


@fault("price forgotten", PRICED)
def planned_as_one(patch: pytest.MonkeyPatch) -> None:
    """The noise of a single run, as if there were one."""
    mechanisms_of = planning.mechanisms_of
    patch.setattr(planning, "mechanisms_of", lambda recipes, seen, trials: mechanisms_of(recipes, seen, None))
    patch.setattr(planning, "guarantee", _of_one)


def _of_one(thing: Any, delta: float) -> Any:
    from noisette.accounting import guarantee  # noqa: PLC0415 - the one that is not patched

    return guarantee(thing if isinstance(thing, Mechanism) else thing.runs, delta)


@fault("price forgotten: not in the ledger", by(test_search.test_paid_before_it_starts))
def not_paid(patch: pytest.MonkeyPatch) -> None:
    """Neither paid, nor asked for by the runs."""
    patch.setattr(tuning, "_pay", lambda folder, plan, again: ledger.Ledger(folder / "ledger.jsonl", data="x").close())
    patch.setattr(trial, "read_ledger", lambda path: _Paid())


class _Paid:
    def spent(self, search: object) -> int:
        return 1


@fault(
    "private score without noise",
    by(test_search.test_a_private_score_has_the_noise_that_was_planned, says="does not have its noise"),
)
def exact_score(patch: pytest.MonkeyPatch) -> None:
    class Exact:
        def __init__(self, rows: Any, *_: Any, **__: Any) -> None:
            self.values = rows.mean(dim=0)

    patch.setattr(trial, "private_means", Exact)


@fault(
    "winner chosen by test accuracy",
    by(test_search.test_scores_do_not_come_from_test_examples, says="chosen by other examples"),
)
def by_test_accuracy(patch: pytest.MonkeyPatch) -> None:
    def wrong(plan: planning.Plan, opened: Any, seed: int | None = None) -> float:
        return accuracy(opened.trainer.evaluated, *opened.assembly.test)

    patch.setattr(trial, "score", wrong)
    patch.setattr(test_search, "score", wrong)


@fault("trade-off of a search in the same direction", by(test_best_of_price.test_never_below_the_exact_price))
def same_direction(patch: pytest.MonkeyPatch) -> None:
    """Bounding how events grow by the profile whose price is asked for, and not by the other one."""
    trade = _best_of_price._trade
    patch.setattr(_best_of_price, "_trade", lambda forward, opposite: trade(opposite, forward))


@fault(
    "price forgotten: without its factor",
    by(test_best_of_price.test_never_below_the_exact_price),
    by(test_best_of_price.test_prices, mean=10, law="geometric", most=1.62, about=1.5996),
    replace(PRICED, heavy=True),
)
def factor_forgotten(patch: pytest.MonkeyPatch) -> None:
    price = _best_of_price.best_of_delta

    def wrong(trials: NumTrials, *rest: Any) -> Any:
        return lambda eps: price(trials, *rest)(eps) / trials.mean

    for module in (_best_of_price, test_best_of_price):
        patch.setattr(module, "best_of_delta", wrong)


@fault(
    "price forgotten: without its ratio",
    by(test_best_of_price.test_never_below_the_exact_price),
    by(test_best_of_price.test_prices, mean=10, law="geometric", most=1.62, about=1.5996),
    replace(PRICED, heavy=True),
)
def ratio_forgotten(patch: pytest.MonkeyPatch) -> None:
    for module in (_best_of_price, test_best_of_price):
        patch.setattr(module, "log_ratio", lambda *_: 0.0)


@fault(
    "price forgotten: of cut runs, as if there were one",
    by(test_best_of_price.test_cut_runs_are_paid_for_as_often_as_they_are_made),
)
def cut_in_one_run(patch: pytest.MonkeyPatch) -> None:
    chance = _truncation._chance
    patch.setattr(
        _truncation, "_chance", lambda one, size: chance(one.runs[0] if isinstance(one, BestOf) else one, size)
    )


@fault(
    "price forgotten: of floats, as if there were one run",
    by(test_float_error.test_a_search_draws_for_all_of_its_runs, trials=GeometricNumTrials(10)),
)
def floats_of_one_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GeometricNumTrials, "quantile_bound", lambda self, chance: 1)


@fault(
    "a number of runs that is drawn less rightly than stated",
    by(test_num_trials.test_numbers_of_runs_are_drawn_as_rightly_as_stated, mean=3000.0),
)
def rough_number(patch: pytest.MonkeyPatch) -> None:
    """The log of a number close to 1, from that number."""
    patch.setattr(GeometricNumTrials, "_log", property(lambda self: math.log(1 - 1 / self.mean)))


@fault("a search that hides that rounding mixes examples", by(test_search.test_inexact_runs_are_told_of_the_search))
def inexact_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tuning, "any", lambda found: False, raising=False)


@fault(
    "a winner that is published twice",
    by(test_search.test_killed_while_the_winner_is_published, says="there is another winner"),
)
def published_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tuning, "_winner_of", lambda folder, plan: None)


@fault("private data taken for public", by(test_search.test_what_runs_are_trained_on_is_not_public))
def compared_as_text(patch: pytest.MonkeyPatch) -> None:
    """Another spelling of a file is taken for other people."""
    patch.setattr(tuning.datasets, "population", lambda name: name)


@fault(
    "people who are on both sides of a search",
    by(test_search.test_nobody_is_on_both_sides, says="somebody is on both sides"),
)
def sides_of_rows(patch: pytest.MonkeyPatch) -> None:
    sides = holdout.holdout_mask
    patch.setattr(holdout, "holdout_mask", lambda names, share: sides(range(len(names)), share))


@fault("a held-out part that is trained on", by(test_search.test_held_out_examples_are_not_trained_on))
def trained_on_all(patch: pytest.MonkeyPatch) -> None:
    from noisette.app.runs import inputs  # noqa: PLC0415

    parted = inputs.split
    patch.setattr(inputs, "split", lambda data, share: (data, parted(data, share)[1]))


@fault(
    "a search that tells something of the examples that it holds out",
    by(
        test_neighbours.test_neighbours_cannot_be_told_apart,
        slot=test_neighbours.HELD,
        value=float("nan"),
        says="tells",
    ),
)
def held_out_told(patch: pytest.MonkeyPatch) -> None:
    promised = tuning._promised

    def wrong(plan: planning.Plan, won: Path, steps: int) -> dict[str, Any]:
        opened = trial.reopen(won)
        opened.close()
        assert opened.seen.held is not None
        return promised(plan, won, steps) | {"mean": float(opened.seen.held.train_inputs.nanmean())}

    patch.setattr(tuning, "_promised", wrong)
