"""The planner of a recipe: settings for any budget, from a small public table of settings for some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from noisette._spec import positive
from noisette.errors import InvalidInput

__all__ = ["between", "check_budgets"]

_KEYS = {"epsilon", "steps", "batch", "lr"}
_WHOLE = {"steps", "batch"}


def check_budgets(rows: Sequence[Mapping[str, float]]) -> None:
    """Raise where a row does not give exactly epsilon, steps, batch and lr, or epsilon does not ascend."""
    for row in rows:
        if set(row) != _KEYS:
            raise InvalidInput(
                f"a budget of the recipe gives {sorted(row)}.", hint=f"give each of them exactly {sorted(_KEYS)}"
            )
        for key, value in row.items():
            if not 1e-12 <= positive(key, value) <= 1e12:
                raise InvalidInput(f"a budget of the recipe gives {key} = {value!r}.", hint=f"check its {key}")
    if any(first["epsilon"] >= second["epsilon"] for first, second in pairwise(rows)):
        raise InvalidInput("the budgets of the recipe do not ascend.", hint="sort them by epsilon")


def between(rows: Sequence[Mapping[str, float]], epsilon: float) -> dict[str, float]:
    """Steps, batch and lr for `epsilon`: on straight lines between the rows, all in logarithms, and flat outside.

    Nothing here has seen private data: the table is part of the recipe, and the budget is public.

    >>> first = {"epsilon": 1, "steps": 100, "batch": 1000, "lr": 1.0}
    >>> rows = [first, {"epsilon": 4, "steps": 400, "batch": 1000, "lr": 4.0}]
    >>> between(rows, 2.0)
    {'steps': 200, 'batch': 1000, 'lr': 2.0}
    >>> between(rows, 100.0)["steps"]
    400
    """
    inside = min(max(positive("epsilon", epsilon), rows[0]["epsilon"]), rows[-1]["epsilon"])
    upper = next(i for i, row in enumerate(rows) if row["epsilon"] >= inside)
    high, low = rows[upper], rows[max(upper - 1, 0)]
    span = math.log(high["epsilon"] / low["epsilon"])
    share = math.log(inside / low["epsilon"]) / span if span else 1.0
    values = {key: low[key] * (high[key] / low[key]) ** share for key in ("steps", "batch", "lr")}
    return {key: round(value) if key in _WHOLE else float(f"{value:.6g}") for key, value in values.items()}
