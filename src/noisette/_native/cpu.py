"""The native kernel: how encoders and layers are put to it.

The reference in `noisette._native.reference` says what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from noisette import _native
from noisette._native.reference import allowed
from noisette._quantization import MAX_ROWS
from noisette.encoders.profiles import ProfileSet
from noisette.encoders.profiles.base import Array, rank_counts

if TYPE_CHECKING:
    from noisette._native._extension import Layers, Plan

__all__ = ["Kernel", "kernel_supports", "l2_kernel", "new_layers", "rank_kernel"]

_MOST_LEVELS = 1024  # of a profile: more are rounded down to these
_MOST_KNOTS = 64  # that a profile is chosen by
_STEPS = 2.0**-126, 2.0**100  # that single precision can count in


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel with an encoder's tables in it: its blocks of coordinates are `dims`; clipping has a `limit`."""

    plan: Plan
    dims: tuple[int, ...]
    limit: float | None
    step: float
    isa: str

    def with_products(self, most: int) -> tuple[Kernel, float]:
        """The same for sums that matrix products over at most `most` examples add to; and its smaller `limit`.

        Such products round, and one example can change how all others are rounded. The margin is twice the error of a
        sum of `grid.MOST` vectors in float64: of each product, and of adding them up one after another
        (docs/theory.md).
        """
        if self.limit is None:
            raise AssertionError("only what is clipped is summed by products")
        roundings = 2 + most + -(-MAX_ROWS // most)
        limit = self.limit * (1 - 2 * MAX_ROWS * roundings * 2.0**-53)
        return _clipping(limit, self.step, self.isa), limit

    def rows_sum(self, rows: torch.Tensor) -> torch.Tensor:
        """The encoded sum, float64 (d,), of gradients `rows` (B, d).

        >>> kernel, rows = l2_kernel(radius=1.0, step=2.0**-27), torch.tensor([[0.0, 2.0], [0.5, 0.0]])
        >>> kernel is None or kernel.rows_sum(rows).round(decimals=6).tolist() == [0.5, 1]
        True
        """
        layers, at, rows = new_layers(), 0, rows.detach()
        rows = rows if rows.stride(1) == 1 else rows.contiguous()
        for part in torch.split(rows, list(self.dims) or [rows.shape[1]], dim=1):
            layers.rows(part, at)
            at += part.shape[1]
        total = torch.zeros(rows.shape[1], dtype=torch.float64)
        if self.limit is None:
            self.add(layers, total)
        else:
            self.clip(layers, total, torch.zeros(len(rows), dtype=torch.float64))
        return total

    def add(self, layers: Layers, total: torch.Tensor) -> None:
        """Add the encoded sum of all examples of `layers` to `total`, float64 (d,)."""
        none = torch.empty(0, dtype=torch.float64)
        _native.native.encode_sum(self.plan, layers, total, none, none, torch.get_num_threads(), self.isa)

    def clip(self, layers: Layers, total: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
        """The same where the kernel clips: what every example was multiplied by, float64 (B,).

        `squares`, float64 (B,), is what coordinates that are not in `layers` add to the square of an example's norm.
        """
        factors = torch.empty_like(squares)
        _native.native.encode_sum(self.plan, layers, total, squares, factors, torch.get_num_threads(), self.isa)
        return factors


def new_layers() -> Layers:
    """An empty list of layers, to which its `linear`, `conv` and `rows` add."""
    return _native.native.Layers()


def kernel_supports(rows: torch.Tensor) -> bool:
    """Whether the kernel takes this tensor: float32, in the processor's memory."""
    return rows.dtype == torch.float32 and rows.device.type == "cpu"


def l2_kernel(radius: float, step: float) -> Kernel | None:
    """The kernel that clips at an L2 norm of `radius`, to multiples of a `step`."""
    isa = _able(step)
    return _clipping(allowed(radius), step, isa) if isa else None


@lru_cache(maxsize=8)
def _clipping(limit: float, step: float, isa: str) -> Kernel:
    return Kernel(_native.native.Plan("l2", limit, step), (), limit, step, isa)


def rank_kernel(kind: str, blocks: tuple[ProfileSet, ...], step: float) -> Kernel | None:
    """The kernel that bounds by rank, to multiples of a `step`: `kind` is "ranked" or "snap"."""
    isa = _able(step)
    dims = tuple(block.dim for block in blocks)
    return Kernel(_profile_plan(kind, blocks, step), dims, None, step, isa) if isa else None


def _able(step: float) -> str | None:
    """The variant that runs, if it can count in such steps."""
    return _native.variant() if _STEPS[0] <= step <= _STEPS[1] else None


@lru_cache(maxsize=8)
def _profile_plan(kind: str, blocks: tuple[ProfileSet, ...], step: float) -> Plan:
    # profile sets are compared by identity, and encoders keep theirs
    plan = _native.native.Plan(kind, 0.0, step)
    for block in blocks:
        levels, starts = compact(block)
        knots, ends = choice(block)
        plan.add_block(block.dim, _toward_zero(levels), starts, knots, ends)
    return plan


def compact(block: ProfileSet) -> tuple[Array, np.ndarray]:
    """At most 1024 levels (n, K) and the first rank of each (K,): between them a profile is rounded down.

    >>> from noisette.encoders.profiles import HalfNormal
    >>> compact(HalfNormal(levels=4).build(100)[0])[1].tolist()
    [0, 50, 93, 99]
    """
    starts = np.cumsum(block.counts) - block.counts
    if len(starts) <= _MOST_LEVELS:
        return block.levels, starts
    kept = np.cumsum(counts := rank_counts(block.dim, _MOST_LEVELS)) - counts
    return block.levels[:, np.searchsorted(starts, kept, side="right") - 1], kept


def choice(block: ProfileSet) -> tuple[np.ndarray, np.ndarray]:
    """Unit profiles at few ranks, (C, n) float32, and one past the last rank of each (C,): enough for a cosine.

    Ranks lie ever closer toward the top, where the large coordinates are.
    """
    ends = np.cumsum(block.counts)
    levels = block.levels
    if len(ends) > _MOST_KNOTS:
        kept = np.cumsum(counts := rank_counts(block.dim, _MOST_KNOTS))
        mass = np.cumsum(levels * block.counts, axis=1)
        # levels are constant between ranks, so that their running sum is linear there
        upto = np.stack([np.interp(kept, np.r_[0, ends], np.r_[0.0, row]) for row in mass])
        levels, ends = np.diff(upto, axis=1, prepend=0.0) / counts, kept
    norms = np.maximum(block.norms, np.finfo(np.float64).tiny)
    return np.ascontiguousarray((levels / norms[:, None]).T, dtype=np.float32), ends


def _toward_zero(levels: Array) -> np.ndarray:
    with np.errstate(over="ignore"):  # a level beyond float32 becomes infinite, then the largest float32
        single = levels.astype(np.float32)
    return np.ascontiguousarray(np.where(single > levels, np.nextafter(single, np.float32(0)), single))
