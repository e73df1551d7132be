"""`tune`: draw a number of runs, make them, and publish the best one; all of it within one epsilon."""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from noisette import _io
from noisette._spec import positive
from noisette.accounting import Ledger, read_ledger
from noisette.accounting.account import check_delta
from noisette.accounting.num_trials import NumTrials, num_trials_from_name
from noisette.app import datasets
from noisette.app.features import Progress
from noisette.app.recipes import Recipe
from noisette.app.runs import RunBuilder, metrics, new_folder
from noisette.app.runs.inputs import ModelInputs
from noisette.app.runs.run_folder import alone
from noisette.app.runs.run_settings import Settings
from noisette.app.runs.training_run import check_device
from noisette.app.tuning.executors import check_workers, each
from noisette.app.tuning.plan import Plan, planned
from noisette.app.tuning.search_space import Candidates
from noisette.app.tuning.trial import PRIVATE, best, make, place, public_examples, score_at
from noisette.errors import InvalidInput, NoisetteError
from noisette.mechanism import Guarantee, Mechanism
from noisette.random import Generator
from noisette.training import Processes

__all__ = ["TuneResult", "resume_search", "start_search", "tune"]

_NOTE = """\
PRIVATE. How many runs there are in this folder, what they scored and how long they took is covered by no epsilon.
The search pays for the run that it has chosen and for nothing else here: look at nothing, publish nothing, and
delete this folder when the search is done.
"""


@dataclass(frozen=True)
class TuneResult:
    """What a search publishes. `winner` is the folder of the run that was chosen, None where no run was made.

    `promise` covers the whole search; `single_run_epsilon` is what a single run would have cost. `settings` are those
    that were chosen, of the ones that were tried, and `score` is what the winner was chosen by, None where that is not
    a number.
    """

    winner: Path | None
    guarantee: Guarantee
    single_run_epsilon: float
    trials: NumTrials
    settings: dict[str, Any] | None = None
    score: float | None = None


def tune(
    recipe: str | Recipe,
    candidates: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    epsilon: float,
    trials: float,
    law: str = "logarithmic",
    runs: str | Path = "runs",
    jobs: int = 1,
    ray: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> TuneResult:
    """Choose the best settings for `recipe` among `candidates`, and its model, within `epsilon` for all of it.

    `candidates` is a grid, like ``{"lr": [0.5, 1, 2], "momentum": LogUniform(0.1, 0.9)}``, or a list of settings. The
    number of runs follows `law` with the mean `trials`. Runs are made in `jobs` processes, or on the Ray cluster at the
    address `ray`. `start_search` has the other options.

    **Formal guarantees.** What is returned, and the folder of the winner, are covered by `promise`. The folder of the
    search has a part that is private, and says so.

    Example: ``tune("digits", {"lr": [1, 2]}, epsilon=3, trials=5).winner``.
    """
    check_workers(jobs, ray)
    chosen = Recipe.load(recipe) if isinstance(recipe, str) else recipe
    folder = start_search(
        runs, chosen, candidates, epsilon=epsilon, trials=num_trials_from_name(law, trials), seed=seed, **options
    )
    return resume_search(folder, jobs=jobs, ray=ray, seed=seed)


def start_search(
    root: str | Path,
    recipe: Recipe,
    candidates: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    epsilon: float,
    trials: NumTrials,
    delta: float | None = None,
    held_out: float = 0.2,
    public: str | None = None,
    data_root: str | Path | None = None,
    device: str = "cpu",
    shared: str | Path | None = None,
    people: str | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder below `root` of a new search, planned, drawn and paid for, in which nothing was trained yet.

    Whatever can be refused is refused before it is paid, and then there is no folder. Scores come
    from a share `held_out` of the training examples, with noise, or from the data set `public`.
    """
    root, delta = Path(root), check_delta(recipe.delta if delta is None else delta)
    recipe = replace(
        recipe, data=datasets.public_bounds_of(recipe.data)
    )  # the search may be resumed from another folder
    public = None if public is None else datasets.public_bounds_of(public)
    base = replace(recipe.changed(epsilon=positive("epsilon", epsilon)), held_out=0.0 if public else held_out)
    several = Candidates.of(candidates)
    if public is None and not base.held_out:
        raise InvalidInput("nothing is held out to choose by.", hint="hold out 0.2, or choose by public data")
    whose = people or datasets.population(recipe.data)
    if public is not None and datasets.population(public) in (datasets.population(recipe.data), whose):
        raise InvalidInput(
            f"{public} is what the runs are trained on, and private.", hint="choose by another data set, or hold out"
        )
    recipes = [_settled(base, row, delta) for row in several.corners()]
    seen = ModelInputs.of(base, data_root, progress=progress)
    if public is not None:
        _check_public(public, data_root, seen, base)
    search, mechanisms = planned(recipes, seen, base.epsilon or 0.0, delta, trials)
    known = dict(zip(map(_kind, recipes), mechanisms, strict=True))
    tried = [  # or it cannot be trained
        RunBuilder(one, seen.data, check_device(device)).trainer(known[_kind(one)]).private
        for one in {(_kind(one), one.denoiser): one for one in recipes}.values()
    ]
    plan = Plan(
        recipe.name,
        search,
        delta,
        Settings(
            whose,
            device=device,
            data_root=None if data_root is None else str(data_root),
            shared=None if shared is None else str(shared),
            reproducible=seed is not None,
        ),
        public,
        inexact=any("inexact" in one.flags for one in tried),
    )
    generator = Generator(seed, purpose="search")
    contents = {"search.json": plan.to_json(), f"{PRIVATE}/PRIVATE.txt": _NOTE}
    for number in range(trials.draw(generator)):
        row = several.draw(generator)
        one = _settled(base, row, delta)
        contents |= _trial(place(Path(), number), one, known[_kind(one)], row, plan.settings)
    made = [one for one in (root, *root.parents) if not os.path.exists(one)]
    folder = new_folder(root, f"{recipe.name}-search", contents, closed=PRIVATE)
    try:
        _pay(folder, plan, again=False)
    except NoisetteError:
        shutil.rmtree(folder)  # its own ledger is the last to be paid
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
        raise
    return folder


def _settled(base: Recipe, row: dict[str, Any], delta: float) -> Recipe:
    """The recipe of a run with the settings `row`."""
    return replace(base.changed(**row), delta=delta, budgets=[])


def _kind(recipe: Recipe) -> tuple[Any, ...]:
    """What the mechanism of a recipe depends on, of all that is tried."""
    return recipe.encoder, recipe.noise, recipe.batch, recipe.steps


def _trial(
    where: Path, recipe: Recipe, mechanism: Mechanism, row: dict[str, Any], settings: Settings
) -> dict[str, str]:
    """The files that a run begins with."""
    fixed = replace(recipe, noise=repr(mechanism.noise), steps=mechanism.steps, epsilon=None)
    return {
        f"{where}/recipe.toml": fixed.to_toml(),
        f"{where}/mechanism.toml": mechanism.to_toml(),
        f"{where}/candidate.json": json.dumps(row),
        f"{where}/settings.json": replace(settings, shared=None, search="trial").to_json(),
    }


def _check_public(name: str, root: str | Path | None, seen: ModelInputs, recipe: Recipe) -> None:
    inputs, targets = public_examples(name, root, recipe)
    strange = recipe.target_bounds is None and int(targets.max()) >= seen.data.classes
    if tuple(inputs.shape[1:]) != seen.shape or strange:
        raise InvalidInput(
            f"the public data {name} has examples {tuple(inputs.shape[1:])}, not {seen.shape} of the same classes.",
            hint="choose by data like that which is trained on",
        )


# -- the search itself -------------------------------------------------------------------------------------------------


def resume_search(folder: str | Path, *, jobs: int = 1, ray: str | None = None, seed: int | None = None) -> TuneResult:
    """Pay for the search in `folder`, make the runs that are not made yet, and publish the best one.

    A search that was killed keeps its price, its number of runs and their settings.
    """
    check_workers(jobs, ray)
    folder = Path(folder)
    plan = Plan.read(folder)
    with alone(folder, Processes.current(), "at the search"):
        if not (folder / "result.json").exists():
            places = sorted((folder / PRIVATE).glob("trial-*"))
            if not (folder / PRIVATE / "PRIVATE.txt").exists():
                raise InvalidInput(f"the private part of {folder} is gone.", hint="restore it, or start a new search")
            (folder / PRIVATE).chmod(0o700)  # a copy of the folder may have lost it
            _pay(folder, plan, again=any((one / "ledger.jsonl").exists() for one in places))
            threads = None if jobs == 1 and ray is None else max(1, (os.cpu_count() or 1) // jobs)
            each(partial(make, folder.resolve(), seed, threads), range(len(places)), jobs=jobs, ray=ray)
            _publish(folder, plan, places)
        return _published(folder, plan)


def _pay(folder: Path, plan: Plan, again: bool) -> None:
    """One entry for all of the search, in every ledger, before anything is trained. Its own is the last to have it."""
    with Ledger(folder / "ledger.jsonl", data=plan.settings.people, must_exist=again) as own:
        if own.spent(plan.search):
            return
        flags = plan.promise.flags
        if plan.settings.shared is not None:
            with Ledger(plan.settings.shared, data=plan.settings.people) as book:
                book.spend(plan.search, flags=flags)
        own.spend(plan.search, flags=flags)


def _publish(folder: Path, plan: Plan, places: Sequence[Path]) -> None:
    """Make a run's folder of the winner: what its training released, under the promise of the search."""
    chosen = best([score_at(one) for one in places])
    result: dict[str, Any] = {"winner": None, "settings": None, "score": None}
    if chosen is not None:
        won = places[chosen]
        winner = _winner_of(folder, plan) or new_folder(folder.parent, plan.name, _winner(folder, plan, won))
        result = {
            "winner": winner.name,
            "settings": _io.record(won / "candidate.json"),
            "score": _io.record(won / "score.json")["score"],
        }
    _io.write(folder / "result.json", json.dumps(result).encode())


def _winner_of(folder: Path, plan: Plan) -> Path | None:
    """The folder that an earlier process made of the winner, which was killed before it could say so.

    It is known by its ledger: a copy of the search's, which no other search has.
    """
    paid = _io.raw(folder / "ledger.jsonl")
    for path in sorted(folder.parent.glob(f"{glob.escape(plan.name)}-*/ledger.jsonl")):
        if (
            path.parent != folder
            and path.is_file()
            and _io.raw(path) == paid
            and Settings.read(path.parent).search == "winner"
        ):
            return path.parent
    return None


def _winner(folder: Path, plan: Plan, won: Path) -> dict[str, str | bytes]:
    """The files of the winner's folder, from those of the run at `won`."""
    promise = plan.promise
    found = [replace(one, epsilon=promise.epsilon, flags=promise.flags) for one in metrics.read(won)]
    kept = ("recipe.toml", "mechanism.toml", "model.pt", "model.safetensors", "features.pt")
    contents: dict[str, str | bytes] = {name: _io.raw(won / name) for name in kept if (won / name).exists()}
    return contents | {
        "settings.json": replace(Settings.read(won), shared=plan.settings.shared, search="winner").to_json(),
        "ledger.jsonl": _io.raw(folder / "ledger.jsonl"),
        "metrics.jsonl": "".join(one.line() for one in found),
        "guarantee.json": json.dumps(_promised(plan, won, found[-1].total), indent=2) + "\n",
    }


def _promised(plan: Plan, won: Path, steps: int) -> dict[str, Any]:
    trained = _io.record(won / "guarantee.json")
    told = plan.promise.to_dict() | {
        "single_run_epsilon": plan.single_run_epsilon,
        "mechanism": repr(Mechanism.from_toml(_io.text(won / "mechanism.toml"))),
        "search": repr(plan.search),
        "paid": steps,
        "steps": steps,
        "examples": trained["examples"],
        "test": trained["test"],
        "versions": trained["versions"],
    }
    if plan.settings.shared is not None:
        everything = read_ledger(plan.settings.shared).guarantee(plan.delta)
        told |= {"ledger_epsilon": everything.epsilon, "ledger_flags": list(everything.flags)}
    return told


def _published(folder: Path, plan: Plan) -> TuneResult:
    found = _io.record(folder / "result.json")
    winner = None if found["winner"] is None else folder.parent / str(found["winner"])
    if winner is not None and not winner.is_dir():
        raise InvalidInput(
            f"the search in {folder} is complete, and {winner}, which it has chosen, is gone.",
            hint="bring it back from where it is now: what a search has chosen it does not make again",
        )
    return TuneResult(
        winner, plan.promise, plan.single_run_epsilon, plan.search.trials, found["settings"], found["score"]
    )
