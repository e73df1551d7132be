"""A finished run, read from its folder for statements and pages. The ledger decides; files that disagree are refused.

Whatever is read here is public: the ledger, the points that were evaluated on public test data, the recipe. A training
loss, which `--unsafe-show-private-metrics` writes, is left where it is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Self

from noisette import _io
from noisette._guarantee import GROUPS
from noisette._spec import entries, line, parse, positive, real, whole
from noisette.accounting import Tradeoff, group_epsilon, read_ledger, tradeoff
from noisette.accounting._ledger_format import Record
from noisette.accounting.best_of import BestOf
from noisette.app import datasets
from noisette.app.recipes.recipe import Recipe
from noisette.app.runs.metrics import Metric, Point
from noisette.app.runs.metrics import read as read_points
from noisette.app.runs.run_settings import Settings
from noisette.errors import InvalidInput, LedgerError, MechanismMismatch, Unaccountable
from noisette.mechanism import Guarantee, Mechanism, normalize_flags
from noisette.sampling import UNIT

__all__ = ["Audited", "Run", "Spent", "Tested", "Unfinished", "public_name"]

_AGREE = 1e-4
"""Epsilons of the same steps agree to this part, also with one that was written before floats were paid for."""
_VERDICTS = ("consistent with the claim", "REFUTED")


class Unfinished(InvalidInput):
    """A run that still has steps to take, or to be set up."""


@dataclass(frozen=True)
class Spent:
    """What a ledger of several runs holds: the epsilon of all of it, None where no finite one can be shown.

    `steps` are its steps in all and `searches` the searches beside them, None where the ledger is not at hand and the
    run's own note of it is told.
    """

    epsilon: float | None
    flags: tuple[str, ...]
    steps: int | None = None
    searches: int | None = None


@dataclass(frozen=True)
class Audited:
    """What audit.json says, where the folder has one."""

    verdict: str
    level: float

    @property
    def refuted(self) -> bool:
        """Whether the audit contradicts the claim."""
        return self.verdict == _VERDICTS[1]


@dataclass(frozen=True)
class Tested:
    """How many test examples a run has, and the measure of one answer to all of them, whichever is best."""

    examples: int
    constant: float


@dataclass(frozen=True, eq=False)
class Run:
    """A run whose steps are all taken, with the promise that its ledger gives.

    Of a run that a `search` has chosen, that is the promise of the whole search.
    """

    folder: Path
    recipe: Recipe
    settings: Settings
    mechanism: Mechanism
    search: BestOf | None
    promise: Guarantee
    points: list[Point]
    book: Record
    spent: Spent | None
    audited: Audited | None
    examples: int | None
    tested: Tested | None
    versions: dict[str, str]

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """The finished run in `folder`; an error says what is missing, unfinished, damaged or of another version."""
        folder = Path(folder)
        if not folder.is_dir():
            raise InvalidInput(f"there is no folder {folder}.", hint="give the folder of a run, like runs/digits-0001")
        recipe = Recipe.from_toml(_io.text(folder / "recipe.toml"), folder / "recipe.toml")
        settings = Settings.read(folder)
        settings.example(folder)  # or it is not set up
        book = read_ledger(folder / "ledger.jsonl")
        points = read_points(folder)
        if not points or points[-1].paid < points[-1].total or not (folder / "guarantee.json").exists():
            raise Unfinished(
                f"the run in {folder} is not finished: it has paid for {sum(one.steps for one in book.mechanisms())} "
                "steps so far.",
                hint=f"go on with noisette resume {quote(str(folder))}, then report it",
            )
        mechanism, search = _trained(book, folder)
        promise = _promise(folder, book, recipe.delta, settings)
        written = _io.record(folder / "guarantee.json")
        with _io.naming(folder / "guarantee.json"):
            found = written.get("examples")
            examples = None if found is None else whole("examples", found, least=1)
            tested = _tested(written.get("test"))
            versions = _texts(written.get("versions", {}))
        spent = _spent(settings, recipe, search or mechanism, written)
        return cls(
            folder, recipe, settings, mechanism, search, promise, points, book, spent, _audited(folder, mechanism),
            examples, tested, versions,
        )  # fmt: skip

    @cached_property
    def curve(self) -> Tradeoff:
        """What any test can do, from all that the ledger says."""
        return tradeoff(self.book.mechanisms())

    def found(self, alarms: float) -> float:
        """The largest share of members that a test can find with this share of false `alarms`."""
        return 1 - float(self.curve.false_negative(alarms))

    @cached_property
    def groups(self) -> dict[int, float]:
        """The epsilon of so many rows, or people, at once."""
        return {size: group_epsilon(self.book.mechanisms(), size, self.promise.delta) for size in GROUPS}

    @property
    def person(self) -> bool:
        """Whether the promise is for a person with all of their examples, and not for one example."""
        return self.mechanism.sampling.unit == UNIT

    @property
    def measured(self) -> Metric | None:
        """What was measured last on public test data."""
        return self.points[-1].measured

    @property
    def data(self) -> str:
        """The data set, without the path of its file."""
        return public_name(datasets.population(self.recipe.data))

    @property
    def people(self) -> str:
        """Whose ledger it is, without the path of a file."""
        return public_name(self.book.population_name)

    @property
    def name(self) -> str:
        """What people call the model, or the folder's name."""
        return self.recipe.statement.get("name") or self.folder.resolve().name

    @property
    def date(self) -> str:
        """The day of the last payment."""
        return self.book.time[:10] or "not recorded"


def public_name(people: str) -> str:
    """The name of people or data, with the path of a file cut down to the file.

    >>> public_name("csv:/home/me/patients.csv"), public_name("digits"), public_name("classes 2020/21")
    ('patients.csv', 'digits', 'classes 2020/21')
    """
    path = re.fullmatch(r"\w+:(/.*)", people)
    return Path(path[1]).name if path else people


def _trained(book: Record, folder: Path) -> tuple[Mechanism, BestOf | None]:
    """The mechanism that a run was trained by, which its own ledger has paid for alone, or in a search."""
    paid = book.mechanisms()
    if len(paid) == 1 and isinstance(paid[0], Mechanism):
        return paid[0], None
    path = folder / "mechanism.toml"
    with _io.naming(path):
        trained = Mechanism.from_toml(_io.text(path))
    if len(paid) == 1 and isinstance(paid[0], BestOf) and trained in paid[0].runs:
        return trained, paid[0]
    raise MechanismMismatch(
        f"the ledger of the run in {folder} has paid for something else than its mechanism.",
        hint="restore its ledger.jsonl and its mechanism.toml from a backup",
    )


def _promise(folder: Path, book: Record, delta: float, settings: Settings) -> Guarantee:
    """What the ledger says now, which guarantee.json must agree with."""
    path = folder / "guarantee.json"
    written, promise = _io.record(path), book.guarantee(delta)
    with _io.naming(path):
        epsilon = positive("epsilon", written.get("epsilon"))
        flags = normalize_flags(line("flags", name) for name in entries("flags", written.get("flags")))
    same = math.isclose(epsilon, promise.epsilon, rel_tol=_AGREE)
    if written.get("mechanism_hash") != promise.mechanism_hash or written.get("delta") != delta or not same:
        raise MechanismMismatch(
            f"{path} promises something else than the ledger beside it has paid for.",
            hint="restore it, or use the noisette that wrote it; "
            f"noisette account --ledger {quote(str(folder / 'ledger.jsonl'))} tells what was spent",
        )
    return promise.with_flags(*flags, *["reproducible"] * settings.reproducible, *["unsafe"] * settings.unsafe)


def _spent(settings: Settings, recipe: Recipe, paid: Mechanism | BestOf, written: dict[str, Any]) -> Spent | None:
    """All that was spent on the ledger that the run shares with others, as it is now, or as it was when it ended."""
    if settings.shared is None:
        return None
    path = Path(settings.shared)
    if not path.exists():
        with _io.naming(Path("guarantee.json")):
            flags = normalize_flags(line("ledger_flags", n) for n in entries("flags", written.get("ledger_flags")))
            return Spent(positive("ledger_epsilon", written.get("ledger_epsilon")), flags)
    book = read_ledger(path)
    if _count(book, paid) < paid.steps:
        raise LedgerError(
            f"the ledger {path} does not hold the payments of this run.",
            hint="restore it from a backup; it was cut or exchanged",
        )
    steps = sum(one.steps for one in book.mechanisms() if isinstance(one, Mechanism))
    searches = sum(isinstance(one, BestOf) for one in book.mechanisms())
    try:
        promise = book.guarantee(recipe.delta)
    except Unaccountable:
        return Spent(None, book.flags, steps, searches)
    return Spent(promise.epsilon, promise.flags, steps, searches)


def _count(book: Record, paid: Mechanism | BestOf) -> int:
    """Steps of what was `paid` that `book` holds, whatever the number that was planned; of a search, how often."""
    if isinstance(paid, BestOf):
        return sum(one == paid for one in book.mechanisms())
    same = (one for one in book.mechanisms() if isinstance(one, Mechanism))
    return sum(one.steps for one in same if one.replace(steps=1) == paid.replace(steps=1))


def _audited(folder: Path, mechanism: Mechanism) -> Audited | None:
    path = folder / "audit.json"
    if not path.exists():
        return None
    found = _io.record(path)
    with _io.naming(path):
        verdict, level = line("verdict", found.get("verdict")), positive("level", found.get("level"))
        audited = parse(line("mechanism", found.get("mechanism")), Mechanism)
    if verdict not in _VERDICTS or audited.replace(steps=1) != mechanism.replace(steps=1):
        raise MechanismMismatch(
            f"{path} is not an audit of the mechanism of this run.", hint="audit this mechanism, or move the file away"
        )
    return Audited(verdict, level)


def _tested(value: Any) -> Tested | None:
    """What is not recorded, as by an earlier version, is None."""
    if not isinstance(value, dict):
        return None
    return Tested(whole("examples", value.get("examples"), least=1), real("constant", value.get("constant")))


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidInput("versions are not a table.", hint="restore the file from a backup")
    return {line("versions", name): line("versions", text) for name, text in value.items()}
