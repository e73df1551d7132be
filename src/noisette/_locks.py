"""Locks of files and folders, which end with the process that holds them: those of POSIX.

Windows has none that a folder can have, nor any that readers share, and its own are not tried: a ledger that two
processes write to would lose payments. So nothing is imported there.
"""

from __future__ import annotations

import os

from noisette.errors import MissingExtra

try:
    import fcntl
except ImportError:
    raise MissingExtra(
        "noisette keeps its ledgers by the file locks of POSIX, which this system lacks.",
        hint="run it on Linux or macOS; on Windows, in the Windows Subsystem for Linux",
    ) from None

__all__ = ["hold", "let_go", "only_append"]


def hold(file: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file or folder, alone or `shared` with others who do.

    Raises BlockingIOError where another process has it, unless it is to `wait` for that.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     hold(file.fileno())
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)


def only_append(file: int) -> None:
    """From here on an open file only grows: whatever is written to it comes after all that is there."""
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)


def let_go(file: int) -> None:
    """Give the lock of an open file back, also for processes that were forked meanwhile and have it open."""
    fcntl.flock(file, fcntl.LOCK_UN)
