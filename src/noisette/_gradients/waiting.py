"""A line on the terminal while a model is tried, for whoever has waited two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["doing", "waiting"]

_FIRST = 2.0  # seconds until the first line; each of the next ones takes twice as long


class _Watch:
    def __init__(self, subject: str) -> None:
        self.subject, self.start, self.due = subject, time.monotonic(), _FIRST


_watch: ContextVar[_Watch | None] = ContextVar("_watch", default=None)


@contextmanager
def waiting(subject: str) -> Iterator[None]:
    """Whatever in this block says what it is `doing` says so of `subject`; outside of such a block nobody does.

    So nothing is written once private examples are drawn.
    """
    token = _watch.set(_Watch(subject))
    try:
        yield
    finally:
        _watch.reset(token)


def doing(what: str) -> None:
    """Say what is done next, on a terminal and if it is time for a line.

    >>> with waiting("Linear"):
    ...     doing("batches of 16")
    """
    watch = _watch.get()
    if watch is None or not sys.stderr.isatty():
        return
    passed = time.monotonic() - watch.start
    if passed >= watch.due:
        watch.due = 2 * passed
        sys.stderr.write(f"trying {watch.subject} on made-up examples: {what} ({passed:.0f} s)\n")
        sys.stderr.flush()
