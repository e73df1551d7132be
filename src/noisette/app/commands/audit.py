"""`noisette audit`: attack a mechanism, or a whole training, and say whether its claim survives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from noisette.app.commands.options import mechanism
from noisette.app.commands.output import JsonFlag, emit, features_on, log, show, table, tell_all_taken
from noisette.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

    from noisette._pytree import Batch
    from noisette.app.recipes import Recipe
    from noisette.audit import Audit, OneRun
    from noisette.audit.one_run import Score
    from noisette.mechanism import Mechanism

__all__ = ["audit_command"]

REFUTED = 3
"""Exit status of an audit that contradicts the claim."""


def audit_command(
    encoder: Annotated[str, typer.Option("--encoder", help='Such as "Ranked(dim=26010)".')] = "",
    noise: Annotated[str, typer.Option("--noise", help='Such as "StudentT(df=9, scale=1.0)".')] = "",
    rate: Annotated[str, typer.Option("--rate", help="Sampling rate; fractions like 256/60000 are fine.")] = "",
    steps: Annotated[int, typer.Option("--steps", help="Steps with and without the canary, in each regime.")] = 2000,
    level: Annotated[float, typer.Option("--level", help="Chance of refuting an honest mechanism.")] = 1e-4,
    units: Annotated[bool, typer.Option("--units", help="The canary is a whole unit with many examples.")] = False,
    recipe: Annotated[str, typer.Option("--one-run", help="Audit one whole training by this recipe instead.")] = "",
    canaries: Annotated[int, typer.Option("--canaries", help="Canaries of --one-run.")] = 200,
    confidence: Annotated[float, typer.Option("--confidence", help="Confidence of --one-run's bounds.")] = 0.95,
    data_root: Annotated[Path | None, typer.Option("--data-root", help="Folder with the data sets.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes an audit that can be repeated.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a picture to this PNG.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every point that was tested as well.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Attack a mechanism's real step, and compare with its claimed trade-off. Exit status 3 when it is refuted."""
    from noisette.app.recipes import Recipe
    from noisette.audit import audit

    if recipe:
        if plot is not None or units:
            raise InvalidInput("an audit of one run has no picture and no units.", hint="leave --plot and --units out")
        shown, claim = _one_run(Recipe.load(recipe), canaries, confidence, data_root, seed)
        told = shown.to_dict() | {"mechanism": repr(claim), "hash": claim.hash}
        emit(as_json, told, lambda: _show_one_run(shown))
        raise typer.Exit(REFUTED if shown.refuted else 0)
    if not (encoder and noise and rate):
        raise InvalidInput("no mechanism was given.", hint="give --encoder, --noise and --rate, or --one-run RECIPE")
    audited = mechanism(encoder, noise, rate, 1, units=units)
    with _bar() as bar:
        task = bar.add_task("auditing", total=None)
        found = audit(
            audited,
            steps=steps,
            level=level,
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if plot is not None:
        from noisette.app.reports.audit import draw_audit

        draw_audit(found, f"{audited.noise!r}, rate {audited.rate:.4g}", plot)
    told = found.to_dict() | {"mechanism": repr(audited), "hash": audited.hash}
    emit(as_json, told, lambda: _show(found, plot, verbose))
    raise typer.Exit(REFUTED if found.refuted else 0)


def _bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=log, transient=True)


def _show(found: Audit, plot: Path | None, verbose: bool) -> None:
    _show_verdict(found.verdict, found.refuted)
    for reason in found.reasons:
        show.print(f"  {reason}")
    show.print(f"an honest mechanism is refuted at most once in {1 / found.level:,.0f} audits; {found.seconds:.0f} s")
    if plot is not None:
        show.print(f"plot: {plot}")
    if not verbose:
        return
    rows = [
        [
            f"{point.regime}, {point.direction}{'  <--' if point.refutes else ''}",
            f"{point.false_positive:.4f}",
            f"{point.false_negative:.4f}",
            f"{point.false_positive_bound:.4f}",
            f"{point.false_negative_bound:.4f}",
            f"{point.claimed:.4f}",
        ]
        for point in found.points
    ]
    show.print(
        table(["regime, test", "false pos.", "false neg.", "pos. at most", "neg. at most", "claimed neg."], rows)
    )


def _show_one_run(found: OneRun) -> None:
    from noisette._guarantee import rounded_up
    from noisette.mechanism import FLAGS

    _show_verdict(found.verdict, found.refuted)
    for size, right in zip(found.guesses, found.num_correct, strict=True):
        show.print(f"{right} of {size} guesses about {found.canaries} canaries are right")
    said = f" ({'; '.join(FLAGS[name] for name in found.flags)})" if found.flags else ""
    show.print(f"claimed: epsilon at most {rounded_up(found.claimed)} at delta = {found.delta:g}{said}")
    show.print(f"shown with confidence {found.confidence:g}: epsilon at least {found.lower:.4g}")
    show.print(f"the same for a Gaussian trade-off: at least {found.lower_gaussian:.4g}")
    show.print("one run shows gross errors only: a low bound is not evidence of more privacy than claimed")


def _show_verdict(verdict: str, refuted: bool) -> None:
    show.print(verdict, style="bold red" if refuted else "bold green")


def _one_run(
    recipe: Recipe, count: int, confidence: float, root: Path | None, seed: int | None
) -> tuple[OneRun, Mechanism]:
    """Train by a recipe, with training examples of wrong targets as canaries, scored by the trained model's loss.

    Data, features, model and trainer are those of any run of the recipe; a canary that enters is a training example.
    """
    import torch

    from noisette.app.runs import ModelInputs, RunBuilder
    from noisette.audit import one_run
    from noisette.random import Generator
    from noisette.training import answers

    if recipe.unit:
        raise InvalidInput(
            "the canaries of an audit of one run are examples, and the recipe is for units.",
            hint="audit its step: noisette audit --units with --encoder, --noise and --rate",
        )
    with log.status("loading data and planning the noise") as status:
        made = RunBuilder(recipe, ModelInputs.of(recipe, root, progress=features_on(status)).data)
        inputs, targets = made.train
        if not 10 <= count <= len(inputs) // 2:
            raise InvalidInput(
                f"{count} canaries do not fit {len(inputs)} training examples.",
                hint=f"choose between 10 and {len(inputs) // 2}",
            )
        examples = len(inputs) - count // 2  # their number is public, so that the rate is set from the expected one
        claim = made.plan(examples)
    tell_all_taken(recipe.batch, examples)
    draw = Generator(seed, purpose="canaries")
    chosen = torch.from_numpy(draw.uniforms(len(inputs)).argsort())
    wrong = made.task.wrong_targets(targets[chosen[:count]], torch.from_numpy(draw.uniforms(count)))
    planted = inputs[chosen[:count]], wrong
    rest = inputs[chosen[count:]], targets[chosen[count:]]

    def train(batch: Batch) -> Score:
        trainer = made.trainer(claim, batch, seed=seed)
        with _bar() as bar:
            for _ in bar.track(trainer.run(), total=trainer.private.total, description="training"):
                pass

        def score(batch: Batch) -> Tensor:
            return -made.task.losses(answers(trainer.evaluated, batch[0]), batch[1])

        return score

    return one_run(train, rest, planted, claim, delta=recipe.delta, confidence=confidence, seed=seed), claim
