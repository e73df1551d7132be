"""What a training shows to the outside: lines run, output, logs, files, shapes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

import noisette.accounting.ledger as ledgers
import noisette.training.private_run as steps
from noisette._gradients import PerExampleGradients
from noisette._private import Private, Released
from noisette.mechanism import Mechanism
from noisette.training import PrivateRun

__all__ = ["Observed", "observe"]

_PACKAGE = str(Path(steps.__file__).parents[1])


@dataclass
class Observed:
    """One run, as an onlooker sees it. `shapes` are those of released vectors and of the gradients set from them."""

    flow: list[tuple[str, str, int]] = field(default_factory=list)
    output: str = ""
    logs: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    releases: list[Released] = field(default_factory=list)
    result: Any = None


class OutOfReleases(Exception):
    """The run asks for more releases than the first run made."""


def observe(train: Callable[[Any], Any], data: Any, frozen: list[Released] | None) -> Observed:
    """Run ``train(data)`` in an empty folder with a stopped clock; `frozen` releases stand in for fresh ones."""
    seen = Observed()
    written = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        _stopped_clock(),
        _same_public_randomness(),
        _releases(seen, frozen),
        _logs(seen.logs),
        contextlib.redirect_stdout(written),
        contextlib.redirect_stderr(written),
    ):
        with _flow(seen.flow, train):
            try:
                seen.result = train(data)
            except OutOfReleases:
                seen.flow.append(("", "one release more than with the first data set", 0))
        here = Path(folder)
        for path in sorted(here.rglob("*")):
            if path.is_file():
                seen.files[str(path.relative_to(here))] = hashlib.sha256(path.read_bytes()).hexdigest()
    seen.output = written.getvalue()
    return seen


@contextlib.contextmanager
def _swapped(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def _stopped_clock() -> contextlib.AbstractContextManager[None]:
    """Clocks stand still, and ledgers are all called alike: neither tells of the data."""
    clocks = ((time, name, lambda: 0.0) for name in ("time", "monotonic", "perf_counter"))
    book = (ledgers, "_now", lambda: "1970-01-01T00:00:00Z"), (ledgers, "_identity", lambda: "0" * 16)
    return _swapped(*clocks, *book)


@contextlib.contextmanager
def _same_public_randomness() -> Iterator[None]:
    """Initial weights and the like come out alike; afterwards every generator stands where it stood."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one is what users use
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextlib.contextmanager
def _releases(seen: Observed, frozen: list[Released] | None) -> Iterator[None]:
    """Keep what is released; or hand out what an earlier run released, whatever the sum is now."""
    honest: Callable[..., Released] = vars(steps)["release"]
    write = PerExampleGradients.write
    waiting = iter(frozen or ())

    def watched_release(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        if frozen is None:
            out = honest(mechanism, total, **options)
        elif (kept := next(waiting, None)) is None:
            raise OutOfReleases
        else:
            out = kept
        seen.releases.append(out)
        seen.shapes.append((total.dim,))
        return out

    def watched_write(self: Any, flat: torch.Tensor, over: float = 1.0) -> None:
        seen.shapes.append(tuple(flat.shape))
        write(self, flat, over)

    with _swapped((steps, "release", watched_release), (PerExampleGradients, "write", watched_write)):
        yield


@contextlib.contextmanager
def _logs(lines: list[str]) -> Iterator[None]:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.levelname} {record.getMessage()}")

    handler, root = Keep(logging.DEBUG), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@contextlib.contextmanager
def _flow(lines: list[tuple[str, str, int]], train: Callable[[Any], Any]) -> Iterator[None]:
    """Note every line that runs in this package and in the file of `train`, but for private sums and releases.

    What happens before a release may depend on the batch: how many chunks there are, which rows are empty. What
    happens after it may not.
    """
    own = getattr(train, "__code__", None)
    files = (_PACKAGE,) if own is None else (_PACKAGE, own.co_filename)
    apart: tuple[CodeType, ...] = (PrivateRun._encode_batch_sum.__code__, vars(steps)["release"].__code__)
    depth = 0

    def leave(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        nonlocal depth
        depth -= event == "return"
        return leave

    def line(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        if event == "line" and not depth:
            lines.append((os.path.basename(frame.f_code.co_filename), frame.f_code.co_qualname, frame.f_lineno))
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        nonlocal depth
        code = frame.f_code
        if code in apart:
            depth += 1
            return leave
        if depth or not code.co_filename.startswith(files) or code.co_filename == __file__:
            return None
        return line

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)
