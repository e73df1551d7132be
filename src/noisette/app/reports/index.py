"""All runs of a folder: what each promises, and what they come to for the people in their data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from noisette import _io
from noisette.accounting import guarantee, read_ledger
from noisette.accounting._ledger_format import Record
from noisette.accounting.best_of import BestOf
from noisette.app.recipes.recipe import Recipe
from noisette.app.reports.run import Run, Unfinished, public_name
from noisette.app.runs.run_settings import Settings
from noisette.app.tuning.plan import Plan
from noisette.errors import InvalidInput, NoisetteError, Unaccountable
from noisette.mechanism import Mechanism, normalize_flags

__all__ = ["Index", "Purse", "folders"]

Watch = Callable[[Iterable[Path]], Iterable[Path]]
"""Shows how far a loop over folders is."""


@dataclass(frozen=True)
class Purse:
    """What the runs of a folder spent on the same people; `totals` are epsilons after each run, in their order.

    `finite` is false where no finite epsilon can be shown for all of them; then `totals` ends before.
    """

    people: str
    delta: float
    runs: tuple[str, ...]
    totals: tuple[float, ...]
    flags: tuple[str, ...]
    finite: bool


@dataclass(frozen=True)
class Index:
    """The finished runs below `root`; others that have paid, by name and steps; and those that cannot be read.

    A search whose winner is not there is among those that have paid, with no number of steps.
    """

    root: Path
    runs: tuple[Run, ...]
    unfinished: tuple[tuple[str, int | None], ...]
    unreadable: tuple[tuple[str, NoisetteError], ...]
    purses: tuple[Purse, ...]

    @classmethod
    def read(cls, root: str | Path, watch: Watch = iter) -> Index:
        """The runs below `root`. `watch` goes around the loop over them."""
        root, runs, unreadable, books = Path(root), [], [], []
        unfinished: list[tuple[str, int | None]] = []
        searches = _seen(root, "search.json")
        for folder in watch(folders(root) if not searches else _seen(root, "settings.json")):
            try:
                recipe = Recipe.from_toml(_io.text(folder / "recipe.toml"), folder / "recipe.toml")
                if not Settings.read(folder).ready:  # so nothing was spent
                    unfinished.append((folder.name, 0))
                    continue
                book = read_ledger(folder / "ledger.jsonl")
                books.append((folder.name, recipe.delta, book))
                runs.append(Run.read(folder))
            except Unfinished:
                unfinished.append((folder.name, sum(one.steps for one in book.mechanisms())))
            except NoisetteError as error:
                unreadable.append((folder.name, error))
        for folder in searches:
            try:
                plan, book = Plan.read(folder), read_ledger(folder / "ledger.jsonl")
            except NoisetteError as error:
                unreadable.append((folder.name, error))
                continue
            if not any(book.tip == one.tip for *_, one in books):  # the run that it chose has a copy of its ledger
                books.append((folder.name, plan.delta, book))
                unfinished.append((folder.name, None))
        return cls(root, tuple(runs), tuple(unfinished), tuple(unreadable), tuple(_purses(books)))


def folders(root: Path) -> list[Path]:
    """The folders of runs below `root`, by name; an error where there is none."""
    found = _seen(root, "settings.json")
    if not found:
        raise InvalidInput(
            f"{root} is neither a run nor a folder of runs.", hint="give runs/NAME-0001, or runs/ for all of them"
        )
    return found


def _seen(root: Path, name: str) -> list[Path]:
    """Folders below `root` with a file `name`; hidden ones were left by a process that was killed."""
    return sorted(path.parent for path in root.glob(f"*/{name}") if not path.parent.name.startswith("."))


def _purses(books: list[tuple[str, float, Record]]) -> Iterator[Purse]:
    """What the ledgers of runs come to, for each people that they name. The least delta holds for all."""
    for people in dict.fromkeys(book.population_name for *_, book in books):
        same = sorted((one for one in books if one[2].population_name == people), key=lambda one: (one[2].time, one[0]))
        delta, finite = min(delta for _, delta, _ in same), True
        paid: list[Mechanism | BestOf] = []
        totals: list[float] = []
        marks = [mark for *_, book in same for mark in book.flags]
        for *_, book in same:
            paid += book.mechanisms()
            try:
                promise = guarantee(paid, delta)
            except Unaccountable:
                finite = False
                break
            totals.append(promise.epsilon)
            marks += promise.flags
        names = tuple(name for name, *_ in same)
        yield Purse(public_name(people), delta, names, tuple(totals), normalize_flags(marks), finite)
