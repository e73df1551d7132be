"""Where the runs of a search are made: here, in processes side by side, or on a Ray cluster."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import socket
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from noisette._spec import whole
from noisette.errors import InvalidInput, NoisetteError, ProcessLost

__all__ = ["check_workers", "each"]

Work = Callable[[int], None]
_MOST_JOBS = 256
_PATIENCE = 10.0  # seconds
_ADDRESS = re.compile(r"auto|[\w.-]+:\d{1,5}")


def check_workers(jobs: int, ray: str | None) -> None:
    """Raise where there could be no workers: better before anything is paid."""
    whole("jobs", jobs, least=1, most=_MOST_JOBS)
    if ray is not None and not _ADDRESS.fullmatch(ray):
        raise InvalidInput(f"{ray!r} is no address of a Ray cluster.", hint="write auto, or HOST:PORT")
    if ray is not None and importlib.util.find_spec("ray") is None:
        raise InvalidInput("Ray is not installed.", hint="install the extra noisette[ray]")
    if ray is not None and ray != "auto":
        host, _, port = ray.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()  # Ray itself would wait for minutes
        except (OSError, OverflowError):
            raise _nowhere(ray) from None


def each(work: Work, numbers: Sequence[int], *, jobs: int = 1, ray: str | None = None) -> None:
    """Call `work`, which can be pickled, with each of `numbers`; the first error ends all of it."""
    if ray is not None:
        _on_ray(work, numbers, ray)
    elif min(jobs, len(numbers)) <= 1:
        for number in numbers:
            work(number)
    else:
        _side_by_side(work, numbers, min(jobs, len(numbers)))


def _side_by_side(work: Work, numbers: Sequence[int], jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    tasks, errors = context.SimpleQueue(), context.SimpleQueue()
    for number in [*numbers, *[None] * jobs]:
        tasks.put(number)
    # daemons end with this process
    workers = [context.Process(target=_loop, args=(work, tasks, errors), daemon=True) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.start()
        running = {worker.sentinel: worker for worker in workers}
        while running:
            for sentinel in wait(list(running)):
                worker = running.pop(sentinel)  # type: ignore[arg-type]
                worker.join()
                if not errors.empty():
                    raise errors.get()
                if worker.exitcode != 0:
                    raise ProcessLost("a process that made runs was lost.", hint="go on with noisette resume")
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()


def _loop(work: Work, tasks: Any, errors: Any) -> None:
    try:
        while (number := tasks.get()) is not None:
            work(number)
    except NoisetteError as error:
        errors.put(error)
    except KeyboardInterrupt:
        pass  # the process that started this one tells


def _on_ray(work: Work, numbers: Sequence[int], address: str) -> None:
    cluster: Any = importlib.import_module("ray")  # an optional extra
    try:
        here = {name: value for name, value in os.environ.items() if name.startswith(("NOISETTE_", "OMP_", "GOMP_"))}
        cluster.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": here})
    except (ConnectionError, ValueError, RuntimeError):
        raise _nowhere(address) from None
    try:
        remote = cluster.remote(num_cpus=1, max_retries=0)(_there)
        pending = [remote.remote(work, number, os.getcwd()) for number in numbers]
        while pending:
            done, pending = cluster.wait(pending)
            cluster.get(done)
    except cluster.exceptions.RayTaskError as error:
        if isinstance(error.cause, NoisetteError):
            raise error.cause from None
        raise
    except cluster.exceptions.RayError:
        raise ProcessLost("a worker of Ray was lost.", hint="go on with noisette resume") from None
    finally:
        cluster.shutdown()


def _nowhere(address: str) -> InvalidInput:
    return InvalidInput(
        f"there is no Ray cluster at {address!r}.",
        hint="start one with ray start --head, give this process its token, or use --jobs",
    )


def _there(work: Work, number: int, folder: str) -> None:
    """One call in the same working folder, which all machines must share."""
    os.chdir(folder)
    work(number)
