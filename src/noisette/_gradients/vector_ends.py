"""What rounds otherwise at the end of a vector, and the sizes of batches that leave no end.

Torch computes a function of single numbers for as many of them at a time as two vectors of the processor hold, and with
other code for what is left over at the end, or where a thread's share ends. Some functions, like a sigmoid, are not
rounded alike by both. Which ones is found by computing them, for thousands of numbers, once at an end and once
elsewhere. A product of a matrix and one vector, which the strict mode of MKL does not cover, is computed for a few rows
at a time; for how many is found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

__all__ = ["Ends"]

# of single numbers too, though torch does not mark them so
# fmt: off
_UNMARKED = frozenset({
    "binary_cross_entropy", "binary_cross_entropy_backward", "hardsigmoid_backward", "hardswish",
    "hardswish_backward", "huber_loss", "huber_loss_backward", "log_sigmoid_backward", "log_sigmoid_forward",
    "mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "softshrink",
    "softshrink_backward", "hardshrink", "hardshrink_backward", "_prelu_kernel", "_prelu_kernel_backward",
})
# fmt: on
_INNER = 2, 14, 31, 50, 129  # lengths of vectors
_PRODUCTS = frozenset({"mm", "addmm", "mv", "addmv"})  # of a matrix, perhaps with one vector
_SHARED = 32768  # numbers from which on torch shares them among threads
_SHORT, _MANY = 15, 512  # numbers that fill no two vectors, and how many times so many are tried

# one operation of the processor each, which rounds alike in any code
# fmt: off
_ROUND_ALIKE = frozenset({
    "abs", "add", "bitwise_and", "bitwise_not", "bitwise_or", "clamp", "clamp_max", "clamp_min", "clone",
    "copy", "div", "eq", "fill", "ge", "gt", "hardtanh", "hardtanh_backward", "le", "leaky_relu",
    "leaky_relu_backward", "logical_and", "logical_not", "logical_or", "lt", "masked_fill", "maximum",
    "minimum", "mul", "ne", "neg", "reciprocal", "relu", "sign", "sgn", "sqrt", "sub", "threshold",
    "threshold_backward", "where", "zero", "_to_copy",
})
# fmt: on


@dataclass(frozen=True)
class Ends:
    """How many numbers an example has in each tensor that is computed otherwise at its end, and how many go together.

    >>> Ends(frozenset({(50, 32)})).fits(count=64, threads=1), Ends(frozenset({(50, 32)})).fits(count=63, threads=1)
    (True, False)
    """

    widths: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, run: Callable[[], object], count: int) -> Ends:
        """Those of all that is computed while `run` computes something of `count` examples."""
        with _Noting(count) as noted:
            run()
        return cls(frozenset(noted.widths))

    def fits(self, count: int, threads: int) -> bool:
        """Whether `count` examples fill whole vectors in every share of a thread."""
        return all(_whole(count * width, together, threads) for width, together in self.widths)


def _whole(numbers: int, together: int, threads: int) -> bool:
    shares = 1 if numbers < _SHARED else min(threads, -(-numbers // _SHARED))
    return numbers % (shares * together) == 0


@cache
def _together() -> int:
    """Bytes that are computed at a time: two vectors."""
    return 128 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 64


class _Noting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes how wide the results are that round otherwise at an end."""

    def __init__(self, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count = count
        self.widths = set[tuple[int, int]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        found = func(*args, **given)
        name = func.overloadpacket.__name__.rstrip("_")
        rows = name in _PRODUCTS and (found.ndim == 1 or 1 in found.shape)
        if not rows and (name in _ROUND_ALIKE or not (torch.Tag.pointwise in func.tags or name in _UNMARKED)):
            return found
        for part in tree_flatten(found)[0]:
            plain = isinstance(part, Tensor) and part.is_floating_point() and part.numel() % self._count == 0
            if plain and part.numel() and (rows or _differs_at_ends(func, part.dtype, args, given)):
                together = _rows_together(part.dtype) if rows else _together() // part.element_size()
                self.widths.add((part.numel() // self._count, together))
        return found


@cache
def _rows_together(dtype: torch.dtype) -> int:
    """The least number of rows that a matrix times a vector has to be a multiple of, so that all rows round alike."""
    public = torch.Generator().manual_seed(0)

    def alike(count: int, inner: int) -> bool:
        x, y = (torch.randn(1, inner, generator=public).to(dtype) for _ in range(2))
        found = x.expand(count, inner).contiguous() @ y[0]
        return torch.equal(found, found[:1].expand_as(found))

    def hold(step: int) -> bool:
        return all(alike(step * many, inner) for many in (1, 3, 5, 17) for inner in _INNER for _ in range(8))

    return next((step for step in (1, 4, 8, 16) if hold(step)), 32)


_found: dict[object, bool] = {}


def _differs_at_ends(func: Any, dtype: torch.dtype, args: Any, given: Any) -> bool:
    """Whether a function gives other bits at the end of a vector; found once for each of its forms."""
    leaves, structure = tree_flatten((args, given))
    kinds = ((leaf.dtype, leaf.numel() == 1) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    form = func, dtype, structure, *kinds
    if form not in _found:
        try:
            _found[form] = _compared(func, args, given)
        except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
            _found[form] = True  # it does not take vectors, so that they cannot be compared
    return _found[form]


def _compared(func: Any, args: Any, given: Any) -> bool:
    public = torch.Generator().manual_seed(0)

    def drawn(like: Tensor) -> Tensor:
        if like.numel() == 1:
            return like.detach().reshape(()).clone()
        shape = (_MANY, _SHORT)
        if not like.is_floating_point():
            return torch.randint(2, shape, generator=public).to(like.dtype)
        return (torch.randn(shape, generator=public) * torch.rand(shape, generator=public) * 4).to(like.dtype)

    args, given = tree_map_only(Tensor, drawn, (args, given))

    def of(some: Callable[[Tensor], Tensor]) -> list[Tensor]:
        these, those = tree_map_only(Tensor, lambda part: some(part).clone() if part.ndim else part, (args, given))
        found = tree_flatten(func(*these, **those))[0]
        return [part.nan_to_num().flatten() for part in found if isinstance(part, Tensor)]

    whole = of(Tensor.flatten)
    in_turn = zip(*(of(itemgetter(number)) for number in range(_MANY)), strict=True)
    return not all(map(torch.equal, whole, map(torch.cat, in_turn)))
