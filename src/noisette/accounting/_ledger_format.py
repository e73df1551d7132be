"""What the lines of a ledger say, read from bytes alone: no file is opened here, and none can be changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from noisette._spec import Spec, parse, whole
from noisette.accounting.account import guarantee
from noisette.accounting.best_of import BestOf, Expenditure
from noisette.errors import LedgerError, NoisetteError
from noisette.mechanism import Guarantee, Mechanism, normalize_flags

__all__ = ["FORMAT", "Record", "encode_entry"]

FORMAT = "noisette ledger 2"
FIRST = "0" * 16
_PAYMENT, _PLAN = b'{"steps": ', b'{"most": '  # how such lines begin


class Record:
    """All that a ledger holds. `data` names the people whose data was used.

    A ledger has lines of three kinds: the first names its people; a plan says which mechanism is paid for from here on,
    and how many steps a line pays for at most; a payment says how many steps. So a payment that was cut short has a
    price that is known from the lines before it. A search is planned and paid for in the same way, as one step.

    `time` is when its last line was written. `cut` is None, or how many steps were counted for lines that were cut
    short, at the most that they can have paid.
    """

    def __init__(self) -> None:
        self.population_name = ""
        self.tip = FIRST
        self.time = ""
        self.size = 0
        self.torn_steps: int | None = None
        self._mechanisms: dict[str, Mechanism | BestOf] = {}
        self._spent: dict[str, int] = {}
        self._stamps: set[str] = set()
        self._heads: set[str] = set()
        self._plan: dict[str, Any] | None = None

    def spent(self, mechanism: Mechanism | BestOf) -> int:
        """Steps of `mechanism` paid so far; of a search, how often it was paid for."""
        return self._spent.get(mechanism.hash, 0)

    def mechanisms(self) -> Expenditure:
        """All that was spent, as mechanisms with the steps that were paid, and searches as often as they were."""
        found: list[Mechanism | BestOf] = []
        for name, steps in self._spent.items():
            known = self._mechanisms[name]
            found += [known] * steps if isinstance(known, BestOf) else [known.replace(steps=steps)]
        return tuple(found)

    @property
    def flags(self) -> tuple[str, ...]:
        """How the guarantee of what was spent is qualified, because one of its runs was."""
        return normalize_flags(self._stamps)

    def guarantee(self, delta: float, accountant: str = "pld", *, examples: int | None = None) -> Guarantee:
        """What all that was spent promises at `delta`."""
        return guarantee(self.mechanisms(), delta, accountant, examples=examples).with_flags(*self.flags)

    def contains_entry(self, head: str) -> bool:
        """Whether the ledger once ended in the entry `head`: if not, it was cut or exchanged."""
        return head == FIRST or head in self._heads

    # -- lines -----------------------------------------------------------------------------------------------------

    def plan_allows(self, name: str, steps: int, flags: Iterable[str]) -> bool:
        """Whether the plan in force allows a payment for `steps` steps of the mechanism with the hash `name`."""
        plan = self._plan
        return plan is not None and plan["hash"] == name and steps <= plan["most"] and set(flags) <= self._stamps

    def has_mechanism(self, name: str) -> bool:
        """Whether the text of the mechanism with the hash `name` is in the ledger already."""
        return name in self._mechanisms

    def read(self, raw: bytes, name: str, now: str) -> bytes | None:
        """Take in `raw`, all of a ledger. `name` is for errors.

        Where its last line was cut short: the line, or nothing, that must stand in the place of what is left of it.
        """
        if not raw:
            raise LedgerError(
                f"the ledger {name} is empty.",
                hint="restore it from a backup; remove it only if nothing was ever paid into it",
            )
        *lines, tail = raw.split(b"\n")
        for number, line in enumerate(lines, start=1):
            self.add(line + b"\n", name, number)
        return self._mended(tail, name, now) if tail else None

    def _mended(self, tail: bytes, name: str, now: str) -> bytes:
        """A line that lacks nothing but its end stays; another one is taken for the largest that it can have been.

        A crash leaves a payment that nothing was released for, a cut file one that was used: they look the same.
        """
        before, earlier, line = sum(self._spent.values()), self.torn_steps or 0, tail + b"\n"
        try:
            self.add(line, name, 1 if self.tip == FIRST else 0)
        except LedgerError:
            text = tail.rstrip(b"\0")  # what a file system has set aside and not written
            payment, plan = (text.startswith(start) or start.startswith(text) for start in (_PAYMENT, _PLAN))
            if self.tip == FIRST or text.count(b'"chain": ') > 1 or not (plan or (payment and self._plan)):
                raise
            line = b""  # a plan pays nothing
            if payment and self._plan:
                largest = {"steps": self._plan["most"], "hash": self._plan["hash"], "torn": True, "time": now}
                line = encode_entry(self.tip, largest)
                self.add(line, name)
        self.torn_steps = earlier + sum(self._spent.values()) - before
        return line

    def add(self, line: bytes, name: str, number: int = 0) -> None:
        """Take in one whole line, or say that it does not fit those before it."""
        try:
            entry = json.loads(line)
            entry.pop("chain")
            if encode_entry(self.tip, entry) != line:  # the text too must be the very one that was written
                raise ValueError
            self._admit(entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, NoisetteError):
            raise _unfit(name, number) from None
        self.tip = _chain(self.tip, entry)
        self.time = str(entry.get("time", ""))
        self.size += len(line)
        self._heads.add(self.tip)

    def _admit(self, entry: dict[str, Any]) -> None:
        if self.tip == FIRST:
            if entry["format"] != FORMAT or not isinstance(entry["data"], str):
                raise ValueError
            self.population_name = entry["data"]
        elif "most" in entry:
            known = self._mechanisms.get(entry["hash"])
            mechanism = known if known is not None else parse(entry["mechanism"], Spec)
            if not isinstance(mechanism, Mechanism | BestOf) or mechanism.hash != entry["hash"]:
                raise ValueError
            whole("most", entry["most"], least=1)
            # before there were grids, epsilon was for real numbers only
            self._stamps |= {
                *normalize_flags(entry.get("flags", ())),
                *(() if entry.get("grid") is True else ("inexact",)),
            }
            self._mechanisms[entry["hash"]] = mechanism
            self._plan = entry
        else:
            steps = whole("steps", entry["steps"], least=1)
            if not self.plan_allows(entry["hash"], steps, ()):
                raise ValueError
            self._spent[entry["hash"]] = self._spent.get(entry["hash"], 0) + steps
            if entry.get("torn"):
                self.torn_steps = (self.torn_steps or 0) + steps


def encode_entry(head: str, entry: dict[str, Any]) -> bytes:
    """The line for `entry` behind the entry `head`."""
    return json.dumps({**entry, "chain": _chain(head, entry)}).encode() + b"\n"


def _chain(head: str, entry: dict[str, Any]) -> str:
    return hashlib.sha256(f"{head}\n{json.dumps(entry)}".encode()).hexdigest()[:16]


def _unfit(name: str, number: int) -> LedgerError:
    if number == 1:
        return LedgerError(
            f"{name} is not a ledger, or its first line is damaged; it was left as it is.",
            hint="give the path of a ledger, or restore it from a backup",
        )
    return LedgerError(
        f"{f'line {number}' if number else 'the last line'} of the ledger {name} was edited or is damaged.",
        hint="restore the file from a backup; spending that cannot be read cannot be counted",
    )
