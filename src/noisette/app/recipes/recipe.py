"""A recipe: everything that a training run needs, in one TOML file of plain values."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Self

import tomli_w

from noisette import _io
from noisette._spec import line, parse, positive, real, whole
from noisette.accounting.calibrate import calibrate
from noisette.accounting.num_trials import NumTrials
from noisette.app.datasets.column_bounds import pair
from noisette.app.features import Features
from noisette.app.recipes.interpolate import between, check_budgets
from noisette.denoisers import Denoiser
from noisette.encoders import Encoder
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.noise import Noise
from noisette.sampling import EXAMPLE, UNIT, Poisson

__all__ = ["WORDS", "Recipe", "names"]

_TEXTS = ("name", "data", "model", "encoder", "noise", "denoiser", "schedule", "features", "optimizer", "unit", "task")
_WHOLE = {
    "batch": 10**12,
    "chunk": 10**9,
    "evaluations": 10**9,
    "model_seed": 2**64 - 1,
    "per_unit": 10**9,
    "steps": 10**9,
}
"""Whole numbers and the most that they may be: beyond it no run would ever end."""
_NUMBERS = ("lr", "momentum", "averaging", "held_out", "delta", "epsilon")
_NAME = re.compile(r"\w[\w. -]{0,99}")
_LARGEST_RATE = 1e6
WORDS = ("name", "curator", "use", "domain", "access")
"""What only people know about a model, and may write below [statement]."""
_LONGEST = 2000


@dataclass(frozen=True)
class Recipe:
    """What to train and how. Of the noise's scale, `steps` and `epsilon` exactly two are given; the third is computed.

    `features`, where given, is a spec of fixed features that the model is trained on in place of the images. `budgets`
    holds settings for some values of epsilon; another epsilon gets settings between those of its neighbours.

    `model` is a name, or the import path of your own, like ``my_package.nets:Net``. `optimizer` is any of torch.optim
    by name, with `optimizer_options`; `momentum` is for those that have one.

    `task` is "classification", or "regression" for a number, whose public `target_bounds` are then given as well.

    `unit`, where given, is the column of a table that says whose row each is: people are drawn and protected, of each
    at most `per_unit` rows at a time, and `batch` counts people. `held_out` is the share of the training examples that
    no run is trained on, so that a search can choose by them.

    `batch` is the expected batch size; `schedule` is "constant" or "linear" (to zero over the run); `averaging` above 0
    evaluates an exponential moving average of the weights. `statement` has what only people know, for statements and
    pages about the run: the name of what is made, its curator, its use, whose data it is made of, who has access.
    """

    name: str
    data: str
    model: str
    encoder: str
    noise: str
    batch: int
    lr: float
    steps: int | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    denoiser: str = "Identity()"
    momentum: float = 0.0
    schedule: str = "constant"
    averaging: float = 0.0
    chunk: int = 64
    evaluations: int = 20
    model_seed: int = 0
    features: str = ""
    optimizer: str = "SGD"
    unit: str = ""
    per_unit: int = 8
    held_out: float = 0.0
    task: str = "classification"
    target_bounds: tuple[float, float] | None = None
    model_options: dict[str, Any] = field(default_factory=dict)
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    budgets: list[dict[str, float]] = field(default_factory=list)
    statement: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            line(name, getattr(self, name))
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"the recipe is called {self.name!r}, which cannot name a folder.",
                hint="use letters, digits, points, dashes and spaces, and start with a letter or a digit",
            )
        for name, most in _WHOLE.items():
            if getattr(self, name) is not None or name != "steps":
                least = 0 if name == "model_seed" else 1
                object.__setattr__(self, name, whole(name, getattr(self, name), least=least, most=most))
        for name in _NUMBERS:
            if getattr(self, name) is not None or name != "epsilon":
                object.__setattr__(self, name, real(name, getattr(self, name)))
        if positive("lr", self.lr) > _LARGEST_RATE:
            raise InvalidInput(f"lr is {self.lr:g}: no weight is as large.", hint="rates of interest are below 100")
        if not 0 <= self.momentum < 1 or not 0 <= self.averaging < 1:
            raise InvalidInput("momentum or averaging is outside [0, 1).", hint="0.9 is a usual value")
        if not 0 <= self.held_out < 1:
            raise InvalidInput("held_out is outside [0, 1).", hint="0.2 is a usual share")
        if self.schedule not in ("constant", "linear"):
            raise InvalidInput(f"schedule is {self.schedule!r}.", hint="choose constant or linear")
        self._check_task()
        parse(self.encoder, Encoder)
        parse(self.denoiser, Denoiser)
        if self.features:
            parse(self.features, Features)
        self._check_tables()
        if self.epsilon is not None:
            positive("epsilon", self.epsilon)
        given = [parse(self.noise, Noise).scale is not None, self.steps is not None, self.epsilon is not None]
        if sum(given) != 2:
            raise InvalidInput(
                f"{sum(given)} of noise scale, steps and epsilon are given, not two.",
                hint="give two of them, and the third is computed",
            )

    def _check_task(self) -> None:
        if self.task not in ("classification", "regression"):
            raise InvalidInput(f"task is {self.task!r}.", hint="choose classification or regression")
        if (self.task == "regression") != (self.target_bounds is not None):
            raise InvalidInput(
                "regression needs public bounds of the target, and nothing else takes them.",
                hint='give task = "regression" with target_bounds = [0, 120], known beforehand: '
                "--task regression --target-bounds 0,120",
            )
        if self.target_bounds is not None:
            object.__setattr__(self, "target_bounds", pair("the target", self.target_bounds))

    def _check_tables(self) -> None:
        if not isinstance(self.model_options, dict) or "seed" in self.model_options:
            raise InvalidInput(
                "model_options are not a table of options of the model.",
                hint="write them below [model_options]; the seed of its weights is model_seed",
            )
        if not isinstance(self.optimizer_options, dict) or {"lr", "momentum"} & set(self.optimizer_options):
            raise InvalidInput(
                "optimizer_options are not a table of further options of the optimizer.",
                hint="write them below [optimizer_options]; lr and momentum have lines of their own",
            )
        if not isinstance(self.budgets, list) or not all(isinstance(row, dict) for row in self.budgets):
            raise InvalidInput("the budgets of the recipe are not tables.", hint="write each of them below [[budgets]]")
        check_budgets(self.budgets)
        _check_words(self.statement)

    @classmethod
    def load(cls, name: str) -> Self:
        """A recipe of the package by name, or any TOML file by path.

        >>> Recipe.load("digits").data
        'digits'
        """
        if name in names():
            return cls.from_toml((resources.files("noisette.app.recipes") / f"{name}.toml").read_text())
        if not (name.endswith(".toml") and os.path.isfile(name)):
            raise InvalidInput(
                f"there is no recipe {name!r}.", hint=f"choose one of {', '.join(names())}, or a TOML file"
            )
        return cls.from_toml(_io.text(Path(name)), Path(name))

    @classmethod
    def from_toml(cls, text: str, path: str | Path = "the recipe") -> Self:
        """The recipe that TOML text describes; errors name the file at `path` that it was read from."""
        table = _io.table(path, text)
        known = [one.name for one in fields(cls)]
        missing = sorted({"name", "data", "model", "encoder", "noise", "batch", "lr"} - set(table))
        unknown = sorted(set(table) - set(known))
        if unknown:
            meant = "lr" if unknown[0] == "learning_rate" else unknown[0]  # whose letters have little in common
            near = difflib.get_close_matches(meant, known, n=1, cutoff=0.4) or known
            raise InvalidInput(f"{path} has an unknown {unknown[0]!r}.", hint=f"did you mean {', '.join(near)}?")
        if missing:
            raise InvalidInput(f"{path} has no {', '.join(missing)}.", hint=f"it may have {', '.join(known)}")
        with _io.naming(path):
            return cls(**table)

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back to an equal value."""
        return tomli_w.dumps({key: value for key, value in asdict(self).items() if value is not None})

    def changed(self, **overrides: Any) -> Self:
        """A copy with fields overridden; what is given explicitly pushes out what the recipe had of the third kind.

        Other data of a recipe that learns numbers comes with `target_bounds` of its own.

        >>> Recipe.load("digits").changed(noise="Gaussian(scale=2.0)", steps=10).epsilon is None
        True
        """
        explicit = {key: value for key, value in overrides.items() if value is not None}
        planned = between(self.budgets, explicit["epsilon"]) if self.budgets and "epsilon" in explicit else {}
        table = asdict(self) | planned | explicit
        moved = table["data"] != self.data and self.target_bounds is not None
        if moved and table["task"] == "regression" and "target_bounds" not in explicit:
            raise InvalidInput(  # the bounds would fit by chance alone, and what lies outside is cut off unseen
                f"the target bounds of {self.name!r} are those of its own data, not of other data.",
                hint="give --target-bounds LOW,HIGH of the number in your data: public, and not read off the table",
            )
        scaled = parse(table["noise"], Noise).scale is not None
        given = {key for key in ("steps", "epsilon") if overrides.get(key) is not None}
        if scaled and table["steps"] is not None and table["epsilon"] is not None and given != {"steps", "epsilon"}:
            table["epsilon" if "epsilon" not in given else "steps"] = None
        if not scaled and given and None in (table["steps"], table["epsilon"]):
            raise InvalidInput(
                "neither scale nor both of steps and epsilon are given.", hint="give --steps and --epsilon"
            )
        return type(self)(**table)

    def mechanism(self, dim: int, examples: int, trials: NumTrials | None = None) -> Mechanism:
        """The mechanism of this recipe for a model of `dim` parameters and a public number of `examples`, or units.

        With `trials`, its epsilon is that of choosing the best of so many runs.
        """
        rate = min(1.0, self.batch / examples)
        encoder = parse(self.encoder, Encoder)
        encoder = encoder if encoder.dim is not None else encoder.replace(dim=dim)
        sampling = Poisson(rate, unit=UNIT if self.unit else EXAMPLE)
        mechanism = Mechanism(encoder, parse(self.noise, Noise), steps=self.steps or 1, sampling=sampling)
        if self.epsilon is None:
            return mechanism
        unknown = "scale" if self.steps is not None else "steps"
        return calibrate(mechanism, self.epsilon, self.delta, field=unknown, examples=examples, trials=trials)

    def factor(self, step: int, total: int) -> float:
        """What the schedule multiplies the learning rate with at `step` of `total`."""
        return max(0.0, 1 - step / total) if self.schedule == "linear" else 1.0

    def every(self, total: int) -> int:
        """Steps from one evaluation to the next."""
        return -(-total // self.evaluations)


def _check_words(statement: Any) -> None:
    if not isinstance(statement, dict):
        raise InvalidInput("the statement of the recipe is not a table.", hint="write it below [statement]")
    for name, text in statement.items():
        if name not in WORDS:
            near = difflib.get_close_matches(name, WORDS, n=1, cutoff=0.4) or WORDS
            raise InvalidInput(f"the statement has an unknown {name!r}.", hint=f"did you mean {', '.join(near)}?")
        if len(line(name, text)) > _LONGEST:
            raise InvalidInput(
                f"{name} of the statement has {len(text)} characters.", hint=f"say it in {_LONGEST:,} or fewer"
            )


def names() -> list[str]:
    """The recipes of the package."""
    files = resources.files("noisette.app.recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
