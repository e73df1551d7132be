"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from noisette._spec import parse, parse_number
from noisette.errors import InvalidInput
from noisette.sampling import EXAMPLE, UNIT, Poisson

if TYPE_CHECKING:
    from noisette.accounting.num_trials import NumTrials
    from noisette.mechanism import Mechanism

__all__ = [
    "AccountantOption",
    "DeltaOption",
    "EncoderOption",
    "ExamplesOption",
    "LawOption",
    "MostOption",
    "NoiseOption",
    "PerUnitOption",
    "RateOption",
    "TargetBoundsOption",
    "TrialsOption",
    "UnitOption",
    "mechanism",
    "range_given",
    "trials_given",
]

EncoderOption = Annotated[str, typer.Option("--encoder", help='Such as "Ranked(dim=26010)" or "L2(dim=26010)".')]
NoiseOption = Annotated[str, typer.Option("--noise", help='Such as "StudentT(df=9, scale=1.0)".')]
RateOption = Annotated[str, typer.Option("--rate", help="Sampling rate; fractions like 256/60000 are fine.")]
DeltaOption = Annotated[float, typer.Option("--delta", help="Failure probability, well below 1 / examples.")]
AccountantOption = Annotated[str, typer.Option("--accountant", help="pld (tight), rdp or rdp-classic (the paper's).")]
ExamplesOption = Annotated[
    int | None,
    typer.Option("--examples", min=1, help="Public number of examples: a delta of 1/examples or more is refused."),
]

TrialsOption = Annotated[
    int | None, typer.Option("--trials", help="Runs that a search makes on average: the price of choosing the best.")
]
LawOption = Annotated[
    str,
    typer.Option("--trial-distribution", help="How the number of runs is drawn: logarithmic, geometric or poisson."),
]
UnitOption = Annotated[
    str | None, typer.Option("--unit", help="Column of a table that says whose row it is: protects people, not rows.")
]
PerUnitOption = Annotated[int | None, typer.Option("--per-unit", help="Rows of a person that are averaged at a time.")]
TargetBoundsOption = Annotated[
    str | None, typer.Option("--target-bounds", help="LOW,HIGH of a number to predict: public, known beforehand.")
]


def range_given(text: str | None) -> tuple[float, ...] | None:
    """The numbers in a text like ``0,120``, None without one; a recipe says whether they are a range."""
    return None if text is None else tuple(map(parse_number, text.split(",")))


def trials_given(trials: int | None, law: str) -> NumTrials | None:
    """The law that the options describe; None without a search."""
    from noisette.accounting.num_trials import num_trials_from_name

    return None if trials is None else num_trials_from_name(law, trials)


MostOption = Annotated[
    int | None,
    typer.Option(
        "--max-batch", min=1, help="Batches are cut at this many; needs --examples, and is paid for in epsilon."
    ),
]


def mechanism(
    encoder: str,
    noise: str,
    rate: str,
    steps: int,
    *,
    most: int | None = None,
    examples: int | None = None,
    units: bool = False,
) -> Mechanism:
    """The mechanism that the options describe; `examples` is how many there are, where batches are cut at `most`."""
    from noisette.encoders import Encoder
    from noisette.mechanism import Mechanism
    from noisette.noise import Noise

    if most is not None and examples is None:
        raise InvalidInput(
            "how often a batch is cut depends on how many examples there are.", hint="give --examples with --max-batch"
        )
    there = examples if most is not None else None
    sampling = Poisson(parse_number(rate), max_batch=most, population=there, unit=UNIT if units else EXAMPLE)
    return Mechanism(parse(encoder, Encoder), parse(noise, Noise), steps=steps, sampling=sampling)
