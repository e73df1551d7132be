"""The ledger: what was spent on people's data, on disk before the release that it pays for."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noisette._locks import hold, let_go, only_append
from noisette._regular import NotRegular, descriptor
from noisette._spec import whole
from noisette.accounting._ledger_format import FORMAT, Record, encode_entry
from noisette.accounting.best_of import BestOf, component_mechanisms
from noisette.errors import InvalidInput, LedgerError
from noisette.mechanism import Mechanism, normalize_flags, privacy_unit

__all__ = ["Ledger", "read_ledger"]


def read_ledger(path: str | Path) -> Record:
    """What the ledger at `path` holds. Nothing is written: neither to it nor beside it.

    >>> import tempfile
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=0.1, steps=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger(Path(folder) / "ledger.jsonl", data="demo") as ledger:
    ...         ledger.spend(mechanism, steps=2)
    ...     print(read_ledger(Path(folder) / "ledger.jsonl").guarantee(delta=1e-5))
    epsilon = 1.918 at delta = 1e-05
    """
    file = _opened(Path(path), os.O_RDONLY)
    try:
        _lock(file, Path(path), shared=True)
        record = Record()
        record.read(_slurp(file), str(path), _now())
    finally:
        os.close(file)
    return record


class Ledger(Record):
    """An append-only file of JSON lines, each chained to the one before by a hash.

    A ledger belongs to some people, whom its owner names in `data`: the name is public and never derived from the data
    itself. `spend` returns only when the entry is on disk, so whatever is released has been paid. A last line that was
    cut short counts as the most that it can have paid; anything else that does not fit the chain is refused, and so is
    a file that is not a ledger, which is left as it is. While one process has a ledger open, no other can.

    >>> import tempfile
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=0.1, steps=5)
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.jsonl", data="demo") as ledger:
    ...     ledger.spend(mechanism, steps=2)
    ...     ledger.mechanisms()[0].steps
    2
    """

    def __init__(self, path: str | Path, data: str | None = None, *, must_exist: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        self._place = self.path.absolute()  # a loop may change its working directory
        self._one_at_a_time, self._process = threading.Lock(), os.getpid()
        self._held: _Held | None = None
        if not must_exist and _absent(self._place):
            self._create(data)
        self._file = _opened(self.path, os.O_RDWR)
        try:
            _lock(self._file, self.path)
            self._held = _held(self._file)
            _HELD.add(self._held)
            raw = _slurp(self._file)
            line = self.read(raw, str(self.path), _now())
            self._check_data(data)
            if line is not None:
                self._mend(line)
            only_append(self._file)
            self._changed = os.fstat(self._file).st_mtime_ns
            self._check_place()
        except BaseException:
            self.close()
            raise

    # -- spending --------------------------------------------------------------------------------------------------

    def spend(self, mechanism: Mechanism | BestOf, steps: int = 1, *, flags: Iterable[str] = ()) -> None:
        """Pay for `steps` steps of `mechanism`, or for a whole search; they are on disk when this returns.

        `flags` qualify the run that spends, and from now on the guarantee of the ledger.
        """
        steps, marks, name = whole("steps", steps, least=1), normalize_flags(flags), mechanism.hash
        for piece in component_mechanisms((mechanism,)):
            _ = piece.noise.known_scale, piece.encoder.known_dim  # what is open cannot be paid for
        self.check(mechanism)
        with self._one_at_a_time:
            if isinstance(mechanism, Mechanism):
                mechanism.replace(steps=self.spent(mechanism) + steps)  # or nobody could read off what was spent
            self._pay(mechanism, name, steps, marks)

    def check(self, mechanism: Mechanism | BestOf) -> None:
        """Raise where `mechanism` is for units and what was spent so far for examples, or the other way round."""
        of, before = privacy_unit(component_mechanisms((mechanism,))), component_mechanisms(self.mechanisms())
        if before and privacy_unit(before) != of:
            raise LedgerError(
                f"the ledger {self.path} counts what is spent on every {privacy_unit(before)}, and this is for every "
                f"{of}: "
                "the two do not add up.",
                hint="keep a ledger for each, under another path (--ledger)",
            )

    def _pay(self, mechanism: Mechanism | BestOf, name: str, steps: int, marks: tuple[str, ...]) -> None:
        if not self.plan_allows(name, steps, marks):
            plan: dict[str, Any] = {"most": steps, "hash": name, "grid": True}
            if marks:
                plan["flags"] = list(marks)
            if not self.has_mechanism(name):
                plan["mechanism"] = repr(mechanism)
            self._append(plan)
        self._append({"steps": steps, "hash": name})

    # -- the file --------------------------------------------------------------------------------------------------

    def _append(self, entry: dict[str, Any]) -> None:
        self._check_place()
        line = encode_entry(self.tip, {**entry, "time": _now()})
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, "no space left on device")
            os.fsync(self._file)
            self._changed = os.fstat(self._file).st_mtime_ns
        except BaseException as error:  # Ctrl-C as well: what is not paid for certain must not stay half written
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.size)
                self._changed = os.fstat(self._file).st_mtime_ns
            if isinstance(error, OSError):
                raise _unwritable(self.path, error) from None
            raise
        self.add(line, str(self.path))
        self._check_place()  # a line in a file that nobody will find pays for nothing

    def _mend(self, line: bytes) -> None:
        """Write `line` over what is left of the last one: at no moment is less on disk than was paid."""
        try:
            if os.pwrite(self._file, line, self.size - len(line)) != len(line):
                raise OSError(errno.ENOSPC, "no space left on device")
            os.fsync(self._file)
            os.ftruncate(self._file, self.size)
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def _create(self, data: str | None) -> None:
        """Begin a ledger; it appears under its name with its first line in it, or not at all."""
        if not isinstance(data, str):
            raise InvalidInput("a new ledger needs the name of its people.", hint="give data='...', any public name")
        # the id tells apart two ledgers of the same second, so that one cannot stand in for the other
        line = encode_entry(self.tip, {"format": FORMAT, "data": data, "id": _identity(), "time": _now()})
        beside = self._place.with_name(f"{self._place.name}.{os.getpid()}.new")
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("xb") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):  # another process was faster: its ledger is taken
                    os.link(beside, self._place)
            finally:
                beside.unlink(missing_ok=True)
            folder = os.open(self._place.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # the file's own name must survive a crash as well
            finally:
                os.close(folder)
        except (OSError, ValueError) as error:
            raise _unwritable(self.path, error) from None

    def _check_place(self) -> None:
        """Refuse to go on where the path leads to another file than the one that is open, or others wrote to it."""
        if self._file < 0:
            raise LedgerError(f"the ledger {self.path} is closed.", hint="open it again")
        here = os.fstat(self._file)
        try:
            there = os.stat(self._place)
        except OSError:
            there = None
        changed = here.st_size != self.size or here.st_mtime_ns != self._changed
        if there is None or not os.path.samestat(here, there) or changed:
            raise LedgerError(
                f"the ledger {self.path} was moved, replaced or changed while it was open, so nothing was released.",
                hint="put back the ledger that was opened, then resume",
            )

    def _check_data(self, data: str | None) -> None:
        if data is not None and data != self.population_name:
            raise LedgerError(
                f"the ledger {self.path} belongs to the people {self.population_name!r}, not {data!r}.",
                hint=f"if they are the same people, call them {self.population_name!r} (--people, or data=); "
                "two ledgers of the same people would each count too little",
            )

    def close(self) -> None:
        """Give the file back; the ledger can be opened again."""
        if self._file >= 0:
            if self._process == os.getpid():  # processes that were forked meanwhile have the file open as well
                let_go(self._file)
            os.close(self._file)
            self._file = -1
            if self._held is not None:
                _HELD.discard(self._held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _absent(path: Path) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        pass  # opening it will tell why
    return False


def _opened(path: Path, flags: int) -> int:
    """The file at `path`, where it is one: opening a pipe would wait for ever, and a device keeps nothing."""
    try:
        return descriptor(path, flags)
    except NotRegular:
        raise LedgerError(
            f"{path} is not a regular file, so it cannot keep a ledger.", hint="give the path of a file"
        ) from None
    except FileNotFoundError:
        raise LedgerError(
            f"the ledger {path} is missing.", hint="restore it: without it nobody knows what was spent"
        ) from None
    except (OSError, ValueError) as error:
        raise _unwritable(path, error, "read" if flags == os.O_RDONLY else "written") from None


_Held = tuple[int, int, int]
"""A process, and a file by its device and its number there."""

_HELD: set[_Held] = set()  # also those of ledgers that nobody has closed, whose files stay open


def _held(file: int) -> _Held:
    found = os.fstat(file)
    return os.getpid(), found.st_dev, found.st_ino


def _lock(file: int, path: Path, *, shared: bool = False) -> None:
    try:
        hold(file, shared=shared)
    except BlockingIOError:
        whose, hint = "another process", "wait for it to end, then try again"
        if _held(file) in _HELD:
            whose, hint = (
                "this process, which has opened it before",
                "use that one, or close() it first, as `with` does",
            )
        raise LedgerError(f"the ledger {path} is in use by {whose}.", hint=hint) from None
    except OSError as error:
        raise _unwritable(path, error, "locked") from None


def _slurp(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def _unwritable(path: Path, error: OSError | ValueError, what: str = "written") -> LedgerError:
    reason = (getattr(error, "strerror", None) or "no path of a file").lower()
    return LedgerError(
        f"the ledger {path} cannot be {what} ({reason}), so nothing was released.",
        hint="free some space, choose another place, or see who may use it; then resume",
    )


def _identity() -> str:
    """A random name, so that no two ledgers can stand in for each other."""
    return os.urandom(8).hex()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
