"""Where each parameter lies in a flat gradient."""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from noisette._gradients.grad_forms import aligned_empty
from noisette._gradients.sharded import refuse_shards
from noisette._spec import what
from noisette.errors import InvalidInput

__all__ = ["Layout", "trained_parameters"]

_BLOCK = 1 << 16  # numbers that are converted at a time
_LARGE = 1 << 24  # numbers that are not kept for the next step


def trained_parameters(model: nn.Module) -> int:
    """How many numbers of a model are trained: the dimension of its gradient.

    >>> trained_parameters(nn.Linear(3, 2))
    8
    """
    return Layout(model).dim


class Layout:
    """The trainable parameters of a model, each once, in the order of ``named_parameters``, laid end to end.

    >>> layout = Layout(nn.Linear(3, 2))
    >>> layout.names, layout.dim
    (('weight', 'bias'), 8)
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(
                f"the model is {what(model)}, not a module of torch.", hint="give an nn.Module, as Net() makes one"
            )
        refuse_shards(model)
        trainable = _trainable(model)
        if any(map(is_lazy, model.parameters())):
            raise InvalidInput(
                f"{type(model).__name__} has parameters that get their shape when it first runs.",
                hint="run it once on an example of the shape of the data, such as zeros",
            )
        wrapped = isinstance(model, torch.jit.ScriptModule)
        spread = [m for m in model.modules() if isinstance(m, nn.DataParallel | nn.parallel.DistributedDataParallel)]
        if wrapped or spread:  # Fabric hides the latter inside of a wrapper of its own
            raise InvalidInput(
                f"{type(spread[0] if spread else model).__name__} cannot be called with other parameters than its own.",
                hint="give the module that it was made from; under torchrun, join() does what it would do",
            )
        if any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules()):
            raise InvalidInput(
                f"{type(model).__name__} was compiled, and compiled code cannot be shown one example at a time.",
                hint="give the module itself; compile it for predictions, after the training",
            )
        if not trainable:
            raise InvalidInput(
                f"{type(model).__name__} has no trainable parameter.",
                hint="leave requires_grad on where it should learn",
            )
        self.names: tuple[str, ...] = tuple(name for name, _ in trainable)
        self.parameters: tuple[nn.Parameter, ...] = tuple(p for _, p in trainable)
        self.dim = sum(p.numel() for p in self.parameters)
        ends = itertools.accumulate(p.numel() for p in self.parameters)
        self.starts: dict[nn.Parameter, int] = {
            p: end - p.numel() for p, end in zip(self.parameters, ends, strict=True)
        }
        self.spans = [slice(start, start + p.numel()) for p, start in self.starts.items()]
        self._padding = [
            (module.weight, module.padding_idx)
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None
        ]
        self._buffer: Tensor | None = None
        self._instead: Sequence[Tensor] | None = None

    @property
    def values(self) -> list[Tensor]:
        """The numbers that gradients are computed at, one tensor for each parameter: its own, but inside of `at`."""
        return [p.detach() for p in self.parameters] if self._instead is None else list(self._instead)

    @contextmanager
    def at(self, values: Sequence[Tensor]) -> Iterator[None]:
        """Inside, gradients are those at other `values` of the parameters, which stay as they are."""
        self._instead = values
        try:
            yield
        finally:
            self._instead = None

    def describes(self, model: nn.Module) -> bool:
        """Are these still the trainable parameters of the model? Loading or freezing may have changed them."""
        now = _trainable(model)
        return self.names == tuple(name for name, _ in now) and all(
            p is q for p, (_, q) in zip(self.parameters, now, strict=True)
        )

    def rows(self, count: int) -> Tensor:
        """A buffer (count, dim) for gradients: always the same memory while it is large enough."""
        dtype = functools.reduce(torch.promote_types, (p.dtype for p in self.parameters), torch.float32)
        device = self.parameters[0].device
        kept = self._buffer
        if kept is None or len(kept) < count or kept.dtype != dtype or kept.device != device:
            kept = self._buffer = aligned_empty(count, self.dim, dtype, device)
        return kept[:count]

    def spare(self) -> None:
        """Give memory back that is free, or for rows, where it is so much that others miss it."""
        if self._buffer is not None and self._buffer.numel() > _LARGE:
            self._buffer = None
        if self.dim > _LARGE and (trim := _trim()) is not None:
            trim(0)

    def parts(self, rows: Tensor) -> list[Tensor]:
        """Rows (B, dim), or one vector (dim,), seen as one tensor (B, *shape) for each parameter: the same memory."""
        return [
            rows[..., start : start + p.numel()].view((*rows.shape[:-1], *p.shape)) for p, start in self.starts.items()
        ]

    def columns(self, rows: Tensor) -> list[Tensor]:
        """Rows (B, dim) as one tensor (B, n) for each parameter: the same memory."""
        return [rows[:, span] for span in self.spans]

    def write(self, flat: Tensor, over: float = 1.0) -> None:
        """Set ``grad`` of every parameter from a vector (dim,), divided by `over` and copied."""
        if flat.shape != (self.dim,):
            raise InvalidInput(
                f"a vector of shape {tuple(flat.shape)} does not fit {self.dim} trained parameters.",
                hint="give one number for every trained parameter",
            )
        for p, part in zip(self.parameters, self.parts(flat.detach()), strict=True):
            p.grad = _divided(part, over, torch.empty_like(p, requires_grad=False))
        for table, row in self._padding:  # no example moves the row of the padding, and noise should not
            if table.grad is not None:
                table.grad[row] = 0


def _divided(part: Tensor, over: float, out: Tensor) -> Tensor:
    """`part`, float64, divided by `over`, in `out`: a few rows at a time, so that quotients stay in the cache."""
    count = max(1, _BLOCK * len(part) // part.numel()) if part.numel() > _BLOCK else 0
    if not count:
        return torch.div(part, over, out=out)
    for some, place in zip(torch.split(part, count), torch.split(out, count), strict=True):
        torch.div(some, over, out=place)
    return out


@functools.cache
def _trim() -> ctypes._NamedFuncPointer | None:
    """The function of the C library that gives free memory back, where it has one.

    What was activations lies in pieces, and the sum, one large vector, would come on top of them.
    """
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def _trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]
