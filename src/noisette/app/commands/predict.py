"""`noisette predict`: what a run's model says about examples, by the names that their labels have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisette.app.commands.output import JsonFlag, emit, show
from noisette.errors import InvalidInput

if TYPE_CHECKING:
    from noisette.app.datasets import Dataset
    from noisette.app.recipes import Recipe
    from noisette.app.runs.run_settings import Settings

__all__ = ["predict_command"]


def predict_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    data: Annotated[str, typer.Argument(help="A .npy array of inputs, or a data set whose test part is used.")],
    data_root: Annotated[Path | None, typer.Option("--data-root", help="Folder with the data sets.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Classes, by the names of their labels, or numbers that a run's model predicts."""
    from noisette import _io
    from noisette.app.recipes import Recipe
    from noisette.app.runs import load
    from noisette.app.runs.run_settings import Settings
    from noisette.training import answers

    model, settings = load(run), Settings.read(run)
    shape, _ = settings.example(run)
    recipe = Recipe.from_toml(_io.text(run / "recipe.toml"), run / "recipe.toml")
    known = None if data.endswith(".npy") else _tested(data, data_root, recipe, settings)
    inputs = _io.array(Path(data)) if known is None else known.test_inputs
    if tuple(inputs.shape[1:]) != shape or len(inputs) == 0:
        raise InvalidInput(
            f"inputs of shape {tuple(inputs.shape)} do not fit a model for {shape}.",
            hint="give an array (N, ...) of examples",
        )
    found = answers(model, inputs)
    if recipe.target_bounds is None:
        found = found.argmax(dim=1)
    told = found.tolist()
    if settings.labels is not None:
        told = [settings.labels[number] for number in told]
    value: dict[str, Any] = {"run": str(run), "predictions": told}
    if known is not None:
        value |= _measured(told, known, recipe, settings)
    emit(as_json, value, lambda: show.print("\n".join(map(str, told)), markup=False, highlight=False))


def _tested(data: str, root: Path | None, recipe: Recipe, settings: Settings) -> Dataset:
    """The data set, which must have a test part: training examples are private, and so is what is said of them."""
    from noisette.app import datasets

    trained = settings.people, datasets.population(recipe.data)
    if datasets.population(data) in trained and not datasets.within(data, recipe.data):
        raise InvalidInput(
            f"the test part of {data} may hold examples that the run was trained on, which are private.",
            hint=f"give no larger test part than that of {recipe.data}, or data of other people",
        )

    loaded = datasets.load(data, root, recipe.unit, recipe.target_bounds)
    if len(loaded.test_inputs) == 0:
        raise InvalidInput(
            f"{data} has no test part.", hint="hold out a share of a table, csv:PATH:TARGET:0.2, or give a .npy array"
        )
    return loaded


def _measured(told: list[Any], known: Dataset, recipe: Recipe, settings: Settings) -> dict[str, float]:
    """How right the predictions `told` are: labels are compared by their names, where they have some."""
    targets = known.test_targets.tolist()
    if recipe.target_bounds is not None:
        low, high = recipe.target_bounds
        true = [low + (value + 1) * (high - low) / 2 for (value,) in targets]
        return {"mean_absolute_error": sum(abs(a - b) for a, b in zip(told, true, strict=True)) / len(told)}
    if settings.labels is not None and known.labels is not None:
        targets = [known.labels[number] for number in targets]
    elif settings.labels is not None:
        raise InvalidInput(
            f"the labels of {known.name} have no names, and those of the run have.",
            hint="give data like that of the run, or a .npy array of inputs",
        )
    return {"accuracy": sum(a == b for a, b in zip(told, targets, strict=True)) / len(told)}
