"""`noisette train`, `resume` and `show`: a private model with its guarantee in one command."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from noisette.app.commands.loggers import Logger, LoggerOption, loggers_of
from noisette.app.commands.options import PerUnitOption, TargetBoundsOption, UnitOption, range_given
from noisette.app.commands.output import (
    JsonFlag,
    emit,
    features_on,
    log,
    plotted,
    refuse_search,
    show,
    tell_all_taken,
    tell_cut,
    tell_unbounded,
)
from noisette.app.commands.tune import JobsOption, RayOption, search_on
from noisette.errors import InvalidInput, ProcessLost

if TYPE_CHECKING:
    from noisette.accounting._ledger_format import Record
    from noisette.app.runs import OpenRun
    from noisette.app.runs.metrics import Point

__all__ = ["resume_command", "show_command", "train_command"]

_RootOption = Annotated[Path | None, typer.Option("--data-root", help="Folder with the data sets.")]
_UnsafeFlag = Annotated[
    bool,
    typer.Option("--unsafe-show-private-metrics", help="Show the training loss, which is private, and stamp epsilons."),
]


def train_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a TOML file.")] = "digits",
    epsilon: Annotated[float | None, typer.Option(help="The budget.")] = None,
    delta: Annotated[float | None, typer.Option(help="Failure probability.")] = None,
    noise: Annotated[str | None, typer.Option(help='Such as "Laplace()" or "Gaussian(scale=1.1)".')] = None,
    encoder: Annotated[str | None, typer.Option(help='Such as "L2()" or "Ranked(profiles=Tails())".')] = None,
    denoiser: Annotated[str | None, typer.Option(help='Such as "KS()" or "Identity()".')] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps.")] = None,
    batch: Annotated[int | None, typer.Option(help="Expected batch size.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum, of optimizers that have one.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Any optimizer of torch.optim, like Adam.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant or linear.")] = None,
    averaging: Annotated[float | None, typer.Option(help="Factor of the weights' moving average.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of a model, or my_package.nets:Net.")] = None,
    model_option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the model; may be repeated.")] = None,
    data: Annotated[str | None, typer.Option(help="Data set: a name, csv:PATH:TARGET or folder:PATH.")] = None,
    unit: UnitOption = None,
    per_unit: PerUnitOption = None,
    task: Annotated[str | None, typer.Option(help="classification, or regression for a number.")] = None,
    target_bounds: TargetBoundsOption = None,
    chunk: Annotated[int | None, typer.Option(help="Examples whose gradients are in memory at a time.")] = None,
    evaluations: Annotated[int | None, typer.Option(help="How often to evaluate on test data.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes a run that can be repeated and must not be released.")] = None,
    device: Annotated[str, typer.Option(help="Where to compute.")] = "cpu",
    data_root: _RootOption = None,
    runs: Annotated[Path, typer.Option(help="Where the folder of the run goes.")] = Path("runs"),
    ledger: Annotated[Path | None, typer.Option(help="The ledger of these people, which all runs pay into.")] = None,
    people: Annotated[
        str | None, typer.Option(help="A public name for the people in the data; its file or name if left out.")
    ] = None,
    logger: LoggerOption = None,
    unsafe: _UnsafeFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a model with differential privacy."""
    from noisette.app.recipes import Recipe
    from noisette.app.runs import start

    chosen = Recipe.load(recipe)
    options = chosen.model_options | dict(_option(text) for text in model_option or [])
    chosen = chosen.changed(
        epsilon=epsilon, delta=delta, noise=noise, encoder=encoder, denoiser=denoiser, steps=steps, batch=batch, lr=lr,
        momentum=momentum, optimizer=optimizer, schedule=schedule, averaging=averaging, model=model, data=data,
        unit=unit, per_unit=per_unit, task=task, target_bounds=range_given(target_bounds), chunk=chunk,
        evaluations=evaluations, model_options=options if model is None or model_option else {},
    )  # fmt: skip
    loggers = loggers_of(logger)
    with _one_voice():
        with log.status("loading data and planning the noise") as status:
            opened = start(
                runs, chosen, data_root=data_root, device=device, seed=seed, shared=ledger, people=people,
                unsafe=unsafe, progress=features_on(status),
            )  # fmt: skip
        if opened.complete:  # torchrun has started again what was done already
            opened.close()
            log.print(f"{opened.folder} is complete; see noisette show {quote(str(opened.folder))}")
            return
        _work(opened, loggers, as_json)


def resume_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of a search.")],
    data_root: _RootOption = None,
    logger: LoggerOption = None,
    jobs: JobsOption = 1,
    ray: RayOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Go on with a run or a search that was cut off: fresh noise, fresh batches, nothing paid twice."""
    from noisette.app.runs import reopen

    if (run / "search.json").exists():
        from noisette.app.tuning import resume_search

        search_on(run, lambda: resume_search(run, jobs=jobs, ray=ray), as_json)
        return
    loggers = loggers_of(logger)
    with _one_voice():
        with log.status("loading") as status:
            opened = reopen(run, data_root=data_root, progress=features_on(status))
            opened.resume()
        _work(opened, loggers, as_json)


def show_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    statement: Annotated[bool, typer.Option("--statement", help="All that people ask for, in words.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """What a run promises, and how good its model is."""
    refuse_search(run)
    if statement:
        _show_statement(run, as_json)
        return
    from noisette import _io
    from noisette.app.runs import metrics
    from noisette.app.runs.run_settings import Settings

    settings = Settings.read(run) if (run / "settings.json").exists() else None
    if settings is not None:
        settings.example(run)  # or it is private, or not set up
        if not (run / "guarantee.json").exists():
            raise _no_result(run)
    promise, points = _io.record(run / "guarantee.json"), metrics.read(run)
    flags = [entry for key, entry in promise.items() if key.endswith("flags")]
    named = all(isinstance(entry, list) and all(isinstance(name, str) for name in entry) for entry in flags)
    if not {"epsilon", "delta", "kind"} <= promise.keys() or not named:
        raise InvalidInput(f"{run / 'guarantee.json'} is not a guarantee.", hint="restore it from a backup")
    if settings is not None and settings.search is None:
        promise |= _paid_since(run, promise, settings.shared)
    last = points[-1] if points else None
    told = last.as_json if last else {"accuracy": None}
    value = promise | {"run": str(run), **told, "updates": last.updates if last else None}

    def human() -> None:
        for key, entry in value.items():
            text = (", ".join(entry) or "none") if key.endswith("flags") else entry
            if isinstance(entry, dict):
                text = ", ".join(f"{name} {part}" for name, part in entry.items())
            show.print(Text.assemble((key, "bold"), f" {text}"))

    emit(as_json, value, human)


def _show_statement(folder: Path, as_json: bool) -> None:
    from noisette.app.reports.run import Run
    from noisette.app.reports.statement import Statement

    with log.status("reading the run and its ledger"):
        statement = Statement(Run.read(folder))
    tell_cut(statement.run.book, folder / "ledger.jsonl")
    emit(as_json, statement.to_dict(), lambda: show.print(statement.to_text()))


def _paid_since(run: Path, promise: dict[str, Any], shared: str | None) -> dict[str, Any]:
    """What to correct in `promise`, which is as old as the last result, where the ledger has paid for more since."""
    path = run / "ledger.jsonl"
    if not path.exists():
        return {}
    record = _unlocked(path)
    paid = sum(mechanism.steps for mechanism in record.mechanisms())
    if paid == promise.get("paid"):
        return {}
    tell_cut(record, path)
    go_on = f"if no process is at it any more, go on with noisette resume {quote(str(run))}"
    log.print(f"the run is not finished, and its ledger has paid for {paid} steps: {go_on}")
    told = record.guarantee(promise["delta"]).with_flags(*promise.get("flags", ())).to_dict() | {"paid": paid}
    if shared is not None and Path(shared).exists():
        all_runs = _unlocked(Path(shared)).guarantee(promise["delta"])
        told |= {"ledger_epsilon": all_runs.epsilon, "ledger_flags": list(all_runs.flags)}
    return told


def _unlocked(path: Path) -> Record:
    """What the ledger at `path` holds, also while a run has it open: a line that is half written counts as a whole."""
    from noisette import _io
    from noisette.accounting._ledger_format import Record

    record = Record()
    record.read(_io.raw(path), str(path), "")
    return record


def _no_result(run: Path) -> InvalidInput:
    """What to say of a run that was cut off before its first result."""
    from noisette.accounting import read_ledger

    record = read_ledger(run / "ledger.jsonl")
    tell_cut(record, run / "ledger.jsonl")
    paid = sum(mechanism.steps for mechanism in record.mechanisms())
    return InvalidInput(
        f"the run in {run} has no result yet, and has paid for {paid} steps.",
        hint=f"go on with noisette resume {quote(str(run))}",
    )


@contextmanager
def _one_voice() -> Iterator[None]:
    """Inside, the processes that torchrun started are one run, of which process 0 speaks; errors are told by each."""
    from noisette.training import process_group

    with process_group() as processes:
        show.quiet = log.quiet = not processes.is_main
        try:
            yield
        finally:
            show.quiet = log.quiet = False


def _work(opened: OpenRun, loggers: Sequence[Callable[[Path], Logger]], as_json: bool) -> None:
    """Train to the end with a progress bar. Ctrl-C, SIGTERM and a lost process leave a run that can be resumed."""
    began, last = time.monotonic(), None
    if lost := opened.private.steps_paid - opened.private.num_updates:
        log.print(f"{lost} steps were paid after the last checkpoint: they stay paid, and their updates are lost")
    tell_all_taken(opened.recipe.batch, opened.examples, opened.mechanism.sampling.unit)
    tell_unbounded(opened.recipe.data)
    for book in opened.torn_ledgers:
        tell_cut(book, book.path)
    open_loggers = [made(opened.folder) for made in loggers] if opened.processes.is_main else []
    ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
    try:
        with Progress(*columns, TimeRemainingColumn(), console=log, transient=as_json) as bar:
            task = bar.add_task("training", total=opened.private.total, completed=opened.private.num_updates, note="")
            for point in opened.points():
                bar.update(task, completed=opened.private.num_updates)
                if point is not None:
                    last = point
                    bar.update(task, note=_note(point))
                    for logger in open_loggers:
                        logger.log(point)
    except (KeyboardInterrupt, ProcessLost) as reason:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all processes when it has lost one: not midway
        opened.save()
        log.print(f"stopped; go on with: noisette resume {quote(str(opened.folder))}")
        if isinstance(reason, ProcessLost):
            raise
        raise typer.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, ended)
        opened.close()
        for logger in open_loggers:
            logger.close()
    if opened.processes.is_main:
        _finish(opened, last, time.monotonic() - began, as_json)


def _finish(opened: OpenRun, last: Point | None, seconds: float, as_json: bool) -> None:
    if last is None:
        raise InvalidInput(
            "all steps of this run are spent already.", hint=f"see noisette show {quote(str(opened.folder))}"
        )
    picture = plotted(opened.folder)
    promise = opened.guarantee
    value = {
        "run": str(opened.folder),
        **promise.to_dict(),
        **last.as_json,
        "steps": last.updates,
        "seconds": round(seconds, 2),
        "hash": opened.mechanism.hash,
    }

    def human() -> None:
        if (found := last.measured) is not None:
            show.print(f"test {found.name} {found.text} after {last.updates} steps")
        show.print(Text.assemble((f"guarantee: {promise}", "bold"), f" ({promise.kind}, {promise.adjacency})"))
        show.print(promise.arithmetic_summary)
        if picture is None:
            show.print(f"{opened.folder} holds the model and its ledger")
        else:
            show.print(f"{opened.folder} holds the model, its ledger and {picture.name}")
            show.print(f"plot: {picture}")

    emit(as_json, value, human)


def _note(point: Point) -> str:
    from noisette._guarantee import rounded_up

    parts = [f"{point.label} {rounded_up(point.epsilon, 3)}"]
    if (found := point.measured) is not None:
        parts.append(f"test {found.name} {found.text}")
    if point.train_loss is not None:
        parts.append(f"UNSAFE train loss {point.train_loss:.3f}")
    return ", ".join(parts)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"{text!r} is not NAME=VALUE.", hint="write for example activation=tanh")
    if "," in value:
        return name, [_plain(part) for part in value.split(",") if part.strip()]
    return name, _plain(value)


def _plain(value: str) -> int | str:
    """A whole number, or a text as it is."""
    try:
        return int(value)
    except ValueError:
        return value
