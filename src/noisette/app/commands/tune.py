"""`noisette tune`: the best of several settings and its model, within one epsilon for the whole search."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from noisette.app.commands.options import LawOption, PerUnitOption, TargetBoundsOption, UnitOption, range_given
from noisette.app.commands.output import JsonFlag, emit, features_on, log, plotted, show
from noisette.errors import InvalidInput, ProcessLost

if TYPE_CHECKING:
    from noisette.app.tuning import TuneResult

__all__ = ["JobsOption", "RayOption", "search_on", "tune_command"]

JobsOption = Annotated[int, typer.Option("--jobs", help="Runs of a search that are made side by side, in processes.")]
RayOption = Annotated[
    str | None, typer.Option("--ray", help="Make the runs of a search on the Ray cluster at this address, or auto.")
]


def tune_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a TOML file.")],
    epsilon: Annotated[float, typer.Option(help="The budget of the whole search.")],
    trials: Annotated[int, typer.Option(help="Runs that are made on average.")],
    tries: Annotated[
        list[str], typer.Option("--grid", help="NAME=VALUE,VALUE,... or NAME=LOW..HIGH; may be repeated for a grid.")
    ],
    law: LawOption = "logarithmic",
    score: Annotated[str, typer.Option(help="validation: a private part that is held out; or public.")] = "validation",
    public: Annotated[str | None, typer.Option(help="Public data to choose by, with --score public.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the examples that runs are chosen by.")] = 0.2,
    delta: Annotated[float | None, typer.Option(help="Failure probability.")] = None,
    data: Annotated[str | None, typer.Option(help="Data set: a name, csv:PATH:TARGET or folder:PATH.")] = None,
    unit: UnitOption = None,
    per_unit: PerUnitOption = None,
    target_bounds: TargetBoundsOption = None,
    jobs: JobsOption = 1,
    ray: RayOption = None,
    seed: Annotated[int | None, typer.Option(help="Makes a search that must not be released.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute.")] = "cpu",
    data_root: Annotated[Path | None, typer.Option("--data-root", help="Folder with the data sets.")] = None,
    runs: Annotated[Path, typer.Option(help="Where the folders of the search and of its winner go.")] = Path("runs"),
    ledger: Annotated[Path | None, typer.Option(help="The ledger of these people, which all runs pay into.")] = None,
    people: Annotated[str | None, typer.Option(help="A public name for the people in the data.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Choose settings by training several private models, and pay for all of it."""
    from noisette.accounting.num_trials import num_trials_from_name
    from noisette.app.recipes import Recipe
    from noisette.app.tuning import resume_search, start_search
    from noisette.app.tuning.executors import check_workers
    from noisette.app.tuning.search_space import read_option

    if score not in ("validation", "public") or (score == "public") != (public is not None):
        raise InvalidInput(
            "scores come from what is held out, or from public data that was named.",
            hint="give --score public --public DATA, or neither of them",
        )
    check_workers(jobs, ray)
    grid = dict(map(read_option, tries))
    if len(grid) < len(tries):
        raise InvalidInput("a setting is tried twice.", hint="give all its values in one --grid")
    several = num_trials_from_name(law, trials)
    chosen = Recipe.load(recipe).changed(
        data=data, unit=unit, per_unit=per_unit, target_bounds=range_given(target_bounds)
    )

    with log.status("loading data and planning the noise") as status:
        folder = start_search(
            runs, chosen, grid, epsilon=epsilon, trials=several, delta=delta, held_out=held_out, public=public,
            data_root=data_root, device=device, shared=ledger, people=people, seed=seed, progress=features_on(status),
        )  # fmt: skip
    search_on(folder, lambda: resume_search(folder, jobs=jobs, ray=ray, seed=seed), as_json)


def search_on(folder: Path, work: Callable[[], TuneResult], as_json: bool) -> None:
    """Make the runs of the search in `folder`. Ctrl-C and SIGTERM leave a search that can be resumed."""
    ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # nothing tells how far it is: how many runs there are is private
        with log.status("searching; how long it takes is private, as is the number of runs"):
            found = work()
    except (KeyboardInterrupt, ProcessLost) as reason:
        log.print(f"stopped; go on with: noisette resume {quote(str(folder))}")
        if isinstance(reason, ProcessLost):
            raise
        raise typer.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, ended)
    _finish(folder, found, as_json)


def _finish(folder: Path, found: TuneResult, as_json: bool) -> None:
    from noisette._guarantee import rounded_up
    from noisette.app.runs import metrics

    promise, last = found.guarantee, None
    if found.winner is not None:
        told = metrics.read(found.winner)
        last = told[-1] if told else None
        plotted(found.winner)
    value: dict[str, Any] = {
        "winner": None if found.winner is None else str(found.winner),
        "epsilon": promise.epsilon,
        "single_run_epsilon": found.single_run_epsilon,
        "delta": promise.delta,
        "kind": promise.kind,
        "flags": list(promise.flags),
        "trials": found.trials.mean,
        "law": found.trials.name,
        "settings": found.settings,
        "score": found.score,
        **(last.as_json if last else {"accuracy": None}),
        "search": str(folder),
        "hash": promise.mechanism_hash,
    }

    def human() -> None:
        if found.winner is None:
            show.print("no run was made, by chance: there is nothing to publish, and the price is paid")
        else:
            chosen = ", ".join(f"{name} = {setting}" for name, setting in (found.settings or {}).items())
            score = "that is not a number" if found.score is None else f"of {found.score:.4g}"
            show.print(f"chosen: {chosen}, with a score {score}")
            if last is not None and (measured := last.measured) is not None:
                show.print(f"test {measured.name} {measured.text}")
        show.print(Text.assemble((f"guarantee: {promise}", "bold"), f" ({promise.kind}, {promise.adjacency})"))
        show.print(
            f"this is the price of the whole search, {found.trials.mean:g} runs on average ({found.trials.name}); "
            f"one run alone: {rounded_up(found.single_run_epsilon)}"
        )
        if found.winner is not None:
            show.print(f"{found.winner} holds the model and its ledger")
        show.print(f"{folder / 'private'} is private: delete it, and publish nothing of it")

    emit(as_json, value, human)
