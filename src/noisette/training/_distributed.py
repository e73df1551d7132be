"""The processes of one run, started by torchrun: what they must share, add up and agree on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from noisette._private import Private
from noisette.errors import InvalidInput, ProcessLost

__all__ = ["Processes", "process_group"]


@contextmanager
def process_group(timeout: float = 600.0) -> Iterator[Processes]:
    """Inside, the processes that torchrun started are one run; a process that was started alone is one by itself.

    Uses gloo on CPUs and nccl on GPUs, where each process takes the GPU that torchrun numbers it by. A group that is
    there already, from Lightning Fabric or Ray Train, is used as it is. `timeout` is how many seconds to wait for a
    process that says nothing before it counts as lost.

    >>> with process_group() as processes:
    ...     processes
    Processes(rank=0, size=1)
    """
    if _joined() or _started() == 1:
        yield Processes.current()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # torchrun may keep its store when it starts processes again, with addresses in it of those that are gone
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
        fresh = PrefixStore(f"noisette/{attempt}", store)
        dist.init_process_group(store=fresh, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"the {_started()} processes of the run could not find each other.",
            hint="start all of them with torchrun, with the same --rdzv-endpoint or --master-addr",
        ) from error
    try:
        yield Processes.current()
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Processes:
    """This process, whose `number` torch calls its rank, and the others of its run. Alone, everything is the identity.

    Each method but `check_device` is called by all processes, in the same order. One that dies, or says nothing for
    too long, makes it raise `ProcessLost` in the others.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Processes:
        """The processes of the run that this one belongs to."""
        if _joined():
            return cls(dist.get_rank(), dist.get_world_size())
        if _started() > 1:
            raise InvalidInput(
                f"{_started()} processes were started, and they have not joined: each would train alone.",
                hint="put the run inside `with noisette.training.join():`",
            )
        return cls()

    @property
    def is_main(self) -> bool:
        """Whether this is the process that pays, writes and prints."""
        return self.rank == 0

    def all_reduce(self, part: Private) -> Private:
        """The sum of every process's `part`, equal on all of them bit by bit."""
        if self.size == 1:
            return part
        values = part.unsafe_values().clone()
        with self._contact():
            dist.all_reduce(values)
        return Private(values)

    def broadcast_bytes(self, data: bytes) -> bytes:
        """The `data` of process 0, which others may leave empty."""
        if self.size == 1:
            return data
        length = torch.tensor([len(data)], device=_control())
        with self._contact():
            dist.broadcast(length, src=0)
            if self.is_main:
                content = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0).byte()
                content = content.to(_control())
            else:
                content = torch.empty(int(length), dtype=torch.uint8, device=_control())
            dist.broadcast(content, src=0)
        return bytes(content.cpu().numpy())

    def all_gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """The `numbers` of every process, in their order; they are 64-bit, and as many everywhere."""
        mine = torch.tensor(numbers, dtype=torch.int64, device=_control() if self.size > 1 else "cpu")
        if self.size == 1:
            return [mine.tolist()]
        out = [torch.empty_like(mine) for _ in range(self.size)]
        with self._contact():
            dist.all_gather(out, mine)
        return [numbers.tolist() for numbers in out]

    def broadcast_(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite `tensors` by those of process 0."""
        if self.size == 1:
            return
        with self._contact(), torch.no_grad():
            for tensor in tensors:
                content = tensor.detach().contiguous()
                dist.broadcast(content, src=0)
                tensor.copy_(content)

    def assert_same(self, hint: str, **values: object) -> None:
        """Refuse to go on where a value has another text form on another process; names tell which one."""
        if self.size == 1:
            return
        everywhere = self.all_gather([_digest(repr(value).encode()) for value in values.values()])
        for name, *digests in zip(values, *everywhere, strict=True):
            other = next((number for number, digest in enumerate(digests) if digest != digests[0]), None)
            if other is not None:
                raise InvalidInput(f"process {other} has another {name.replace('_', ' ')} than process 0.", hint=hint)

    def digests(self, value: str) -> tuple[int, ...]:
        """A number for the `value` of every process, in their order: equal numbers stand for equal values."""
        return tuple(found for (found,) in self.all_gather([_digest(value.encode())]))

    def check_same_weights(self, parameters: Iterable[Tensor], updates: int) -> None:
        """Refuse to go on where a process has other `parameters`: cheap, so that it can be done often.

        Nobody gets past this before everybody has come to it.
        """
        if self.size == 1:
            return
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        sums = [p.detach().view(bits[p.element_size()]).sum(dtype=torch.int64) for p in parameters]
        everywhere = self.all_gather([updates, int(torch.stack(sums).sum())])
        first = everywhere[0]
        for number, found in enumerate(everywhere):
            if found != first:
                raise InvalidInput(
                    f"process {number} has other weights after {found[0]} updates than process 0 after {first[0]}.",
                    hint="load the same checkpoint in every process, and change weights in all of them alike",
                )

    def check_device(self, device: torch.device) -> None:
        """Refuse tensors on a `device` that the group cannot send from."""
        if self.size > 1 and f"{device.type}:" not in dist.get_backend_config():
            raise InvalidInput(
                f"the data is on {device.type}, where the {dist.get_backend()} group of this run cannot send from.",
                hint="move model and data to the GPU, or start the group with gloo",
            )

    @contextmanager
    def _contact(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what torch.distributed raises for lost, late and reset connections alike
            raise ProcessLost(
                f"process {self.rank} lost contact with another process of the run.",
                hint="it tells why, unless it was killed; resume the run, with as many processes as you like",
            ) from error


def digest_of(tensors: Iterable[Tensor]) -> int:
    """A number for some tensors, which others have only if they are the same in the same order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(sha.digest()[:8], "big", signed=True)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big", signed=True)


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def _started() -> int:
    """How many processes the launcher says that it has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _control() -> torch.device:
    """Where small messages travel: nccl alone sends nothing from a CPU."""
    return torch.device("cpu" if "cpu:" in dist.get_backend_config() else "cuda")
