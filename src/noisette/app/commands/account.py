"""`noisette account`, `calibrate`, `compare`: what a mechanism costs, what noise a budget needs, which to buy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from noisette._spec import parse, parse_number
from noisette.app.commands.options import (
    AccountantOption,
    DeltaOption,
    EncoderOption,
    ExamplesOption,
    LawOption,
    MostOption,
    NoiseOption,
    RateOption,
    TrialsOption,
    mechanism,
    trials_given,
)
from noisette.app.commands.output import JsonFlag, emit, log, show, table, tell_cut
from noisette.errors import InvalidInput

if TYPE_CHECKING:
    from noisette.accounting.best_of import Expenditure
    from noisette.accounting.compare import Row
    from noisette.accounting.num_trials import NumTrials
    from noisette.mechanism import Guarantee

__all__ = ["account_command", "calibrate_command", "compare_command"]

_PlotOption = Annotated[Path | None, typer.Option("--plot", help="Write a picture to this PNG.")]


def account_command(
    encoder: EncoderOption = "",
    noise: NoiseOption = "",
    rate: RateOption = "",
    steps: Annotated[int, typer.Option("--steps", help="Number of steps.")] = 0,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = "pld",
    examples: ExamplesOption = None,
    most: MostOption = None,
    ledger: Annotated[Path | None, typer.Option("--ledger", help="Account for what this ledger spent instead.")] = None,
    trials: TrialsOption = None,
    law: LawOption = "logarithmic",
    plot: _PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """The epsilon of a mechanism, of choosing the best of several runs of it, or of all that a ledger has spent."""
    from noisette.accounting import guarantee, read_ledger, tradeoff
    from noisette.accounting.best_of import BestOf

    several = trials_given(trials, law)
    mechanisms: Expenditure
    if ledger is not None and several is not None:
        raise InvalidInput("a ledger says itself what was searched.", hint="leave --trials out, or --ledger")
    if ledger is not None:
        if most is not None:
            raise InvalidInput("a ledger knows where batches were cut.", hint="leave --max-batch out")
        record = read_ledger(ledger)
        tell_cut(record, ledger)
        mechanisms, flags = record.mechanisms(), record.flags
    elif encoder and noise and rate and steps:  # a mechanism of no steps promises nothing
        one = mechanism(encoder, noise, rate, steps, most=most, examples=examples)
        mechanisms, flags = (one if several is None else BestOf((one,), several),), ()
    else:
        raise InvalidInput(
            "no whole mechanism was given.", hint="give --encoder, --noise, --rate and --steps, or --ledger"
        )
    with log.status("accounting"):
        result = guarantee(mechanisms, delta, accountant, examples=examples).with_flags(*flags)
    if plot is not None:
        from noisette.app.reports.tradeoff import draw_tradeoff

        draw_tradeoff({str(result): tradeoff(mechanisms)}, plot)
    _tell(as_json, result, mechanisms, several)


def calibrate_command(
    encoder: EncoderOption,
    noise: NoiseOption,
    rate: RateOption,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget.")],
    steps: Annotated[int, typer.Option("--steps", help="Number of steps.")] = 1,
    delta: DeltaOption = 1e-5,
    accountant: AccountantOption = "pld",
    field: Annotated[str, typer.Option("--field", help="What to find: scale, steps or rate.")] = "scale",
    examples: ExamplesOption = None,
    most: MostOption = None,
    trials: TrialsOption = None,
    law: LawOption = "logarithmic",
    as_json: JsonFlag = False,
) -> None:
    """The noise scale (or the steps, or the rate) that just keeps a budget."""
    from noisette.accounting import calibrate, guarantee
    from noisette.accounting.best_of import BestOf

    several = trials_given(trials, law)
    with log.status("calibrating"):
        found = calibrate(
            mechanism(encoder, noise, rate, steps, most=most, examples=examples),
            epsilon,
            delta,
            field=field,
            accountant=accountant,
            examples=examples,
            trials=several,
        )
        spent = found if several is None else BestOf((found,), several)
        result = guarantee(spent, delta, accountant)
    _tell(as_json, result, (spent,), several, {"scale": found.noise.scale})


def compare_command(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The common budget.")],
    dim: Annotated[int, typer.Option("--dim", help="Number of coordinates released.")],
    rate: RateOption = "1",
    steps: Annotated[int, typer.Option("--steps", help="Number of releases.")] = 1,
    delta: DeltaOption = 1e-5,
    profiles: Annotated[str, typer.Option("--profiles", help='Such as "HalfNormal()" or "Power()".')] = "HalfNormal()",
    noises: Annotated[list[str] | None, typer.Option("--noises", help="A noise to compare; may be repeated.")] = None,
    plot: _PlotOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Every noise at the same epsilon: its scale and the error that it leaves on a coordinate."""
    from noisette.accounting.compare import DEFAULT_NOISES, compare, verdict
    from noisette.encoders import Ranked
    from noisette.encoders.profiles import Profiles
    from noisette.mechanism import Mechanism, normalize_flags
    from noisette.noise import Gaussian, Noise

    laws = [parse(text, Noise) for text in noises] if noises else list(DEFAULT_NOISES)
    base = Mechanism(Ranked(dim, parse(profiles, Profiles)), Gaussian(), parse_number(rate), steps)
    found = compare(base, epsilon, delta, laws)
    rows = list(track(found, "comparing", len(laws), console=log, transient=True))
    rows.sort(key=lambda row: (row.l2 is None, row.l2 or row.l1))
    winner, words = verdict(rows)
    if plot is not None:
        from noisette.app.reports.comparison import draw_comparison

        draw_comparison(rows, f"epsilon {epsilon:g}, coordinates: {dim:,}, releases: {steps:,}", plot)
    claim = {
        "epsilon": epsilon,
        "delta": delta,
        "flags": list(normalize_flags(name for row in rows for name in row.flags)),
    }
    value = {"rows": [row.to_dict() for row in rows], "winner": winner.noise, "verdict": words, **claim}
    emit(as_json, value, lambda: _show_rows(rows, words))


def _tell(
    as_json: bool,
    result: Guarantee,
    mechanisms: Expenditure,
    trials: NumTrials | None,
    more: dict[str, Any] | None = None,
) -> None:
    """A guarantee; of a search with the epsilon that one of its runs would have, were it the only one."""
    from noisette._guarantee import rounded_up
    from noisette.accounting import guarantee
    from noisette.accounting.best_of import component_mechanisms

    value = _guarantee_json(result, mechanisms) | (more or {})
    if trials is not None:
        value["single_run_epsilon"] = guarantee(
            component_mechanisms(mechanisms), result.delta, result.accountant
        ).epsilon
        value |= {"trials": trials.mean, "law": trials.name}

    def human() -> None:
        _show_guarantee(result, mechanisms)
        if trials is not None:
            show.print(
                f"for the best of {trials.mean:g} runs on average; one run alone: "
                f"{rounded_up(value['single_run_epsilon'])}"
            )

    emit(as_json, value, human)


def _guarantee_json(result: Guarantee, mechanisms: Expenditure) -> dict[str, Any]:
    texts = [repr(one) for one in mechanisms]
    told = result.to_dict()
    digest = told.pop("mechanism_hash")
    return {**told, "mechanism": texts[0] if len(texts) == 1 else texts, "hash": digest}


def _show_guarantee(result: Guarantee, mechanisms: Expenditure) -> None:
    show.print(str(result), style="bold")
    show.print(f"{result.kind} by {result.accountant} ({result.basis}); {result.adjacency}")
    show.print(result.arithmetic_summary)
    for one in mechanisms:
        show.print(repr(one))
    show.print(f"hash {result.mechanism_hash}")


def _show_rows(rows: list[Row], words: str) -> None:
    def cell(value: float | None) -> str:
        return "infinite" if value is None else f"{value:.4g}"

    cells = [
        [
            f"{row.law} ({', '.join(row.flags)})" if row.flags else row.law,
            cell(row.scale),
            cell(row.std),
            cell(row.l1) + ("*" if row.median else ""),
            cell(row.effective_sigma),
        ]
        for row in rows
    ]
    show.print(table(["noise", "scale", "std = L2 error", "L1 error", "effective sigma"], cells))
    if any(row.median for row in rows):
        show.print("* median absolute error: the mean is infinite")
    if any("estimate" in row.flags for row in rows):
        show.print("(estimate): the common epsilon is an estimate for it, not a bound")
    show.print(words)
