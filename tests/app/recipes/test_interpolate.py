"""The planner of recipes: exact at its rows, between them monotone, flat outside, and public."""

from __future__ import annotations

import pytest

from noisette.app.recipes import Recipe, names
from noisette.app.recipes.interpolate import between, check_budgets
from tests.support.helpers import refused

ROWS = [
    {"epsilon": 0.2, "steps": 50, "batch": 8000, "lr": 10.0},
    {"epsilon": 1.0, "steps": 100, "batch": 4000, "lr": 40.0},
    {"epsilon": 3.0, "steps": 400, "batch": 4000, "lr": 40.0},
]
PLANNED = [name for name in names() if Recipe.load(name).budgets]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_met_exactly(row: dict[str, float]) -> None:
    assert {"epsilon": row["epsilon"], **between(ROWS, row["epsilon"])} == row


def test_between_rows_is_between_their_settings() -> None:
    found = [between(ROWS, 0.2 + 0.1 * i) for i in range(29)]
    steps = [one["steps"] for one in found]
    assert steps == sorted(steps)
    assert all(isinstance(one["steps"], int) and isinstance(one["batch"], int) for one in found)
    assert between(ROWS, (0.2 * 1.0) ** 0.5) == {"steps": 71, "batch": 5657, "lr": 20.0}


def test_outside_the_nearest_row_holds() -> None:
    assert between(ROWS, 0.01) == between(ROWS, 0.2)
    assert between(ROWS, 50.0) == between(ROWS, 3.0)


def test_the_recipes_for_pictures_have_a_plan() -> None:
    assert {"mnist", "fashion-mnist", "cifar10"} <= set(PLANNED)


@pytest.mark.parametrize("name", PLANNED)
def test_a_recipe_s_own_settings_are_its_plan_s(name: str) -> None:
    recipe = Recipe.load(name)
    assert recipe.epsilon is not None
    assert recipe.changed(epsilon=recipe.epsilon) == recipe


def test_epsilon_moves_the_rest_unless_it_is_given() -> None:
    recipe = Recipe.load("mnist")
    tight, loose = recipe.changed(epsilon=0.2), recipe.changed(epsilon=3.0)
    assert tight.steps is not None
    assert loose.steps is not None
    assert tight.steps < loose.steps
    assert recipe.changed(epsilon=0.2, steps=7, lr=1.5).steps == 7
    assert recipe.changed(epsilon=0.2, steps=7, lr=1.5).lr == 1.5
    assert recipe.changed(lr=1.5).steps == recipe.steps


@pytest.mark.parametrize(
    "rows",
    [
        [{"epsilon": 1.0, "steps": 3, "batch": 3}],
        [{"epsilon": 1.0, "steps": 3, "batch": 3, "lr": 1.0, "radius": 2.0}],
        [{"epsilon": 1.0, "steps": 3, "batch": 3, "lr": 0.0}],
        [ROWS[1], ROWS[0]],
        [ROWS[1], ROWS[1]],
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(rows: list[dict[str, float]]) -> None:
    with refused():
        check_budgets(rows)


def test_features_are_checked_at_once() -> None:
    with refused():
        Recipe.load("mnist").changed(features="Photographs()")
