"""The ledger: what was spent on a data set, on disk before the release that it pays for."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noisette.errors import InvalidInput, LedgerError, NoisetteError
from noisette.mechanism import Mechanism, Run
from noisette.spec import parse, whole

__all__ = ["Ledger"]

_FORMAT = "noisette ledger 1"
_FIRST = "0" * 16


class Ledger:
    """An append-only file of JSON lines, each chained to the one before by a hash.

    A ledger belongs to one data set, named by its owner: the name is public and never derived from the data. `spend`
    returns only when the entry is on disk, so whatever is released has been paid. A line cut short by a crash paid for
    nothing that was released and is dropped; anything else that does not fit the chain is refused. While one process
    has a ledger open, no other can.

    >>> import tempfile
    >>> from noisette import L2, Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=0.1, steps=5)
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.jsonl", data="demo") as ledger:
    ...     ledger.spend(mechanism, steps=2)
    ...     ledger.run()[0].steps
    2
    """

    def __init__(self, path: str | Path, data: str | None = None, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        self._mechanisms: dict[str, Mechanism] = {}
        self._spent: dict[str, int] = {}
        self._heads: set[str] = set()
        self.head = _FIRST
        if must_exist and not self.path.exists():
            raise LedgerError(
                f"the ledger {self.path} is missing.", hint="restore it: without it nobody knows what was spent"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            self._lock()
            self._read()
            self._name(data)
        except BaseException:
            self.close()
            raise

    # -- spending --------------------------------------------------------------------------------------------------

    def spend(self, mechanism: Mechanism, steps: int = 1) -> None:
        """Pay for `steps` steps of `mechanism`; they are on disk when this returns."""
        steps = whole("steps", steps, least=1)
        mechanism.noise.known_scale  # noqa: B018 - an open scale cannot be paid for
        text, name = repr(mechanism), mechanism.hash
        entry: dict[str, Any] = {"steps": steps, "hash": name, "time": _now()}
        if name not in self._mechanisms:
            entry["mechanism"] = text
        self._append(entry)
        self._count(name, mechanism, steps)

    def spent(self, mechanism: Mechanism) -> int:
        """Steps of `mechanism` paid so far."""
        return self._spent.get(mechanism.hash, 0)

    def run(self) -> Run:
        """All that was spent, as mechanisms with the steps that were paid: give it to `guarantee`."""
        return tuple(self._mechanisms[name].replace(steps=steps) for name, steps in self._spent.items())

    def holds(self, head: str) -> bool:
        """Whether the ledger once ended in the entry `head`: if not, it was cut or exchanged."""
        return head == _FIRST or head in self._heads

    def _count(self, name: str, mechanism: Mechanism, steps: int) -> None:
        self._mechanisms.setdefault(name, mechanism)
        self._spent[name] = self._spent.get(name, 0) + steps

    # -- the file --------------------------------------------------------------------------------------------------

    def _append(self, entry: dict[str, Any]) -> None:
        body = json.dumps(entry, sort_keys=True)
        head = _chain(self.head, body)
        line = json.dumps({"entry": entry, "chain": head}, sort_keys=True) + "\n"
        data = line.encode()
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            if os.write(self._file, data) != len(data):
                raise OSError(errno.ENOSPC, "no space left on device")
            os.fsync(self._file)
        except BaseException as error:  # Ctrl-C as well: what is not paid for certain must not stay half written
            os.ftruncate(self._file, end)
            if isinstance(error, OSError):
                raise self._unwritable(error) from None
            raise
        self.head = head
        self._heads.add(head)

    def _read(self) -> None:
        raw = self._slurp()
        whole_lines, _, torn = raw.rpartition(b"\n")
        for number, line in enumerate(whole_lines.split(b"\n") if whole_lines else [], start=1):
            self._admit(line, number)
        if torn:
            os.ftruncate(self._file, len(raw) - len(torn))

    def _slurp(self) -> bytes:
        pieces = []
        os.lseek(self._file, 0, os.SEEK_SET)
        while piece := os.read(self._file, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def _admit(self, line: bytes, number: int) -> None:
        try:
            record = json.loads(line)
            entry, chain = record["entry"], record["chain"]
            if chain != _chain(self.head, json.dumps(entry, sort_keys=True)):
                raise ValueError
            if number == 1:
                if entry["format"] != _FORMAT:
                    raise ValueError
                self._data: str = entry["data"]
            else:
                known = self._mechanisms.get(entry["hash"])
                mechanism = known if known is not None else parse(entry["mechanism"], Mechanism)
                if mechanism.hash != entry["hash"]:
                    raise ValueError
                self._count(entry["hash"], mechanism, whole("steps", entry["steps"], least=1))
        except (ValueError, KeyError, TypeError, NoisetteError):
            raise LedgerError(
                f"line {number} of the ledger {self.path} was edited or is damaged.",
                hint="restore the file from a backup; spending that cannot be read cannot be counted",
            ) from None
        self.head = chain
        self._heads.add(chain)

    def _name(self, data: str | None) -> None:
        if self.head == _FIRST:
            if data is None:
                raise InvalidInput(
                    "a new ledger needs the name of its data set.", hint="give data='...', any public name"
                )
            self._data = data
            # the id tells apart two ledgers of the same second, so that one cannot stand in for the other
            self._append({"format": _FORMAT, "data": data, "id": _identity(), "time": _now()})
            folder = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(folder)  # the file's own name must survive a crash as well
            os.close(folder)
        elif data is not None and data != self._data:
            raise LedgerError(
                f"the ledger {self.path} belongs to the data set {self._data!r}, not {data!r}.",
                hint="use one ledger for each data set",
            )

    @property
    def data(self) -> str:
        """The name that the owner gave to the data set."""
        return self._data

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LedgerError(
                f"the ledger {self.path} is in use by another process.", hint="wait for it to end, then try again"
            ) from None

    def _unwritable(self, error: OSError) -> LedgerError:
        reason = (error.strerror or "unknown error").lower()
        return LedgerError(
            f"the ledger {self.path} cannot be written ({reason}), so nothing was released.",
            hint="free some space or choose another place, then resume",
        )

    def close(self) -> None:
        """Give the file back; the ledger can be opened again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _chain(head: str, body: str) -> str:
    return hashlib.sha256(f"{head}\n{body}".encode()).hexdigest()[:16]


def _identity() -> str:
    """A random name, so that no two ledgers can stand in for each other."""
    return os.urandom(8).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
