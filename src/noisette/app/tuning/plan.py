"""The plan of a search: the noise with which all of it keeps the budget, and what its folder says about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from noisette import _io
from noisette._gradients import trained_parameters
from noisette._spec import parse
from noisette.accounting import guarantee
from noisette.accounting.account import check_delta
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import NumTrials
from noisette.app.datasets import Dataset
from noisette.app.recipes.recipe import Recipe
from noisette.app.runs.build import model_of
from noisette.app.runs.inputs import ModelInputs
from noisette.app.runs.run_settings import Settings
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import Guarantee, Mechanism
from noisette.private_means import plan_means
from noisette.sampling import EXAMPLE, UNIT

__all__ = ["Plan", "mechanisms_of", "planned"]

FORMAT = "noisette search 1"


@dataclass(frozen=True)
class Plan:
    """What is public of a search, from its start: search.json.

    `public` names the data that scores come from, None where they come from examples that are held out. `inexact`
    says that gradients of some run that may be made are not the same to the last bit in every company.
    """

    name: str
    search: BestOf
    delta: float
    settings: Settings
    public: str | None = None
    inexact: bool = False

    @property
    def promise(self) -> Guarantee:
        """What the whole search promises."""
        flags = ["reproducible"] * self.settings.reproducible + ["inexact"] * self.inexact
        return guarantee(self.search, self.delta).with_flags(*flags)

    @property
    def single_run_epsilon(self) -> float:
        """The epsilon of the costliest run, were it the only one."""
        return max(guarantee(run, self.delta).epsilon for run in self.search.runs)

    def to_json(self) -> str:
        """JSON text that `read` reads back to an equal value."""
        known = {
            "name": self.name,
            "search": repr(self.search),
            "delta": self.delta,
            "public": self.public,
            "inexact": self.inexact,
        }
        return json.dumps({"format": FORMAT, **known, "settings": asdict(self.settings)}, indent=2) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The plan of the search in `folder`."""
        path = folder / "search.json"
        found: dict[str, Any] = _io.record(path)
        keys = {"format", "name", "search", "delta", "public", "inexact", "settings"}
        if found.keys() != keys or found["format"] != FORMAT or not isinstance(found["inexact"], bool):
            raise InvalidInput(
                f"{path} is damaged or of another version.", hint="restore it, or use the noisette that wrote it"
            )
        with _io.naming(path):
            settings = Settings.of(folder, json.dumps(found["settings"]))
            search = parse(str(found["search"]), BestOf)
            name, delta = str(found["name"]), float(found["delta"])
            return cls(name, search, delta, settings, found["public"], found["inexact"])


def mechanisms_of(recipes: Sequence[Recipe], seen: ModelInputs, trials: NumTrials) -> list[Mechanism]:
    """The mechanism of each recipe, such that choosing the best of all runs keeps its epsilon."""
    dim = trained_parameters(model_of(recipes[0], seen.data.shape, seen.data.classes))
    known: dict[tuple[Any, ...], Mechanism] = {}
    found = []
    for recipe in recipes:
        key = recipe.encoder, recipe.noise, recipe.batch, recipe.steps, recipe.epsilon
        if key not in known:
            known[key] = recipe.mechanism(dim, seen.data.sampled, trials)
        found.append(known[key])
    return found


def planned(
    recipes: Sequence[Recipe], seen: ModelInputs, epsilon: float, delta: float, trials: NumTrials
) -> tuple[BestOf, list[Mechanism]]:
    """The search that may make a run of any of `recipes`, within `epsilon`, and the mechanism of each of them.

    Examples that are held out, where there are some, give scores with noise of their own.
    """
    aim, there = epsilon, seen.data.sampled + (0 if seen.held is None else seen.held.sampled)
    check_delta(delta, there, UNIT if recipes[0].unit else EXAMPLE)
    for _ in range(20):
        runs = mechanisms_of([replace(recipe, epsilon=aim, delta=delta) for recipe in recipes], seen, trials)
        search = BestOf(tuple(runs), trials, None if seen.held is None else _score(seen.held, aim, delta, trials))
        reached = guarantee(search, delta).epsilon
        if reached <= epsilon:
            return search, runs
        aim *= 0.999 * epsilon / reached  # the worst of several mechanisms is worse than each of them
    raise Unaccountable("no noise was found that keeps the budget.", hint="try settings that are more alike")


def _score(held: Dataset, epsilon: float, delta: float, trials: NumTrials) -> Mechanism:
    """The release of one score, such that choosing by it keeps `epsilon` for those who are `held` out."""
    # a little below, or the worse of both parts, each at the edge of the budget, would be computed as just beyond it
    found = plan_means(1, 0.998 * epsilon, delta, trials=trials)
    return found if held.train_units is None else found.replace(sampling=found.sampling.replace(unit=UNIT))
