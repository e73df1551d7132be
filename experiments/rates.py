"""Learning rates for CIFAR-10 at full length: chosen on held-out training examples, at a quarter of the length.

Every series gets the same: a first rate, twice and half of it, and one more beyond the best as long as that is at an
end. So the best of each has been held against both of its neighbours. At full length a series takes half of its best: a
constant rate is best where it falls as the root of the number of steps grows, and there are four times as many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kept import Kept, Point
from training import key

from noisette.app.recipes import Recipe

KEPT = Kept("long_rates")
STEPS = 4883
LONGER = 4
"""How many times as long a run at full length is."""


def runs(recipe: Recipe) -> list[Point]:
    """The held-out runs that are kept of a recipe at any rate, by rate."""
    settings = key(recipe, 0)
    del settings["lr"]
    return sorted(KEPT.all(**settings), key=lambda point: float(point["lr"]))


def following(found: Mapping[float, float], first: float) -> float | None:
    """The rate to try next, where `found` has the accuracy of those that were tried; None when there is no need.

    >>> [following({}, 8.0), following({8.0: 50.0}, 8.0), following({8.0: 50.0, 16.0: 51.0}, 8.0)]
    [8.0, 16.0, 4.0]
    >>> following({4.0: 49.0, 8.0: 50.0, 16.0: 51.0}, 8.0)
    32.0
    >>> following({4.0: 49.0, 8.0: 50.0, 16.0: 51.0, 32.0: 20.0}, 8.0) is None
    True
    """
    best = max(found, key=lambda rate: found[rate], default=first)
    return next((rate for rate in (first, 2 * first, first / 2, 2 * best, best / 2) if rate not in found), None)


def tried(recipe: Recipe) -> dict[float, float]:
    """Held-out accuracy in percent at the last step, by rate."""
    return {point["lr"]: point["accuracy"] for point in runs(recipe)}


def chosen(recipe: Recipe) -> float | None:
    """The best rate, once no other is to be tried; the recipe has the first."""
    found = tried(recipe)
    return max(found, key=lambda rate: found[rate]) if following(found, recipe.lr) is None else None


def at_full_length(recipe: Recipe) -> float | None:
    """The rate for all of the steps, once the best for a quarter of them is chosen."""
    best = chosen(recipe)
    return None if best is None else best / math.sqrt(LONGER)
