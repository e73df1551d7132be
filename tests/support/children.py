"""Several processes of one run, for real: forked from this warm one, joined by gloo over the loopback."""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

PATIENCE = 120.0  # seconds after which processes that still run are ended and the test fails
LOST = -signal.SIGKILL


class Children:
    """`size` children that call `work(process)`; what they return or raise is kept in `folder`."""

    def __init__(self, size: int, work: Callable[[int], Any], folder: Path, timeout: float = 20.0) -> None:
        folder.mkdir(parents=True)
        self.size, self._work, self._folder, self._timeout = size, work, folder, timeout
        self.ids = [self._start(process) for process in range(size)]
        self._codes: dict[int, int] = {}

    def _start(self, process: int) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads only wait, and the child starts anew
            child = os.fork()
        if child:
            return child
        code = 1
        try:
            torch.set_num_threads(1)
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            dist.init_process_group(
                "gloo", f"file://{self._folder}/store", timedelta(seconds=self._timeout), self.size, process
            )
            dist.barrier()  # one that is done at once must not leave while others still connect
            self._keep(process, (True, self._work(process)))
            code = 0
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            error.__cause__ = error.__context__ = None
            self._keep(process, (False, error))
            (self._folder / f"{process}.trace").write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _keep(self, process: int, outcome: tuple[bool, Any]) -> None:
        (self._folder / f"{process}.pickle").write_bytes(pickle.dumps(outcome))

    def kill(self, process: int) -> None:
        """End a child without a word, as a machine that loses power would."""
        os.kill(self.ids[process], signal.SIGKILL)

    def wait(self, patience: float = PATIENCE) -> list[int]:
        """The exit status of every child; one that hangs is ended and fails the test."""
        end = time.monotonic() + patience
        while len(self._codes) < self.size:
            for process, child in enumerate(self.ids):
                if process not in self._codes:
                    found, status = os.waitpid(child, os.WNOHANG)
                    if found:
                        self._codes[process] = os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                for process, child in enumerate(self.ids):
                    if process not in self._codes:
                        with suppress(ProcessLookupError):
                            os.kill(child, signal.SIGKILL)
                        os.waitpid(child, 0)
                pytest.fail(f"processes {sorted(set(range(self.size)) - set(self._codes))} hang")
            time.sleep(0.005)
        return [self._codes[process] for process in range(self.size)]

    def outcome(self, process: int) -> Any:
        """What a child returned, or the exception that ended it."""
        return pickle.loads((self._folder / f"{process}.pickle").read_bytes())[1]

    def trace(self, process: int) -> str:
        """Where a child failed."""
        path = self._folder / f"{process}.trace"
        return path.read_text() if path.exists() else ""


def together(size: int, work: Callable[[int], Any], folder: Path, patience: float = PATIENCE) -> list[Any]:
    """What `work(process)` returns on each of `size` joined processes, all of which must succeed."""
    children = Children(size, work, folder)
    codes = children.wait(patience)
    assert codes == [0] * size, "\n".join(children.trace(process) for process in range(size))
    return [children.outcome(process) for process in range(size)]
