"""What an encoder must say about itself: how it encodes, and the image that bounds whatever it does."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import torch

from noisette._native import cpu, reference
from noisette._private import Private
from noisette._quantization import spacing, toward_zero
from noisette._spec import Spec, positive, whole
from noisette.encoders.profiles import ProfileSet
from noisette.errors import InvalidInput

__all__ = ["Encoder", "Image"]

_ROWS, _NUMBERS = 64, 2**22  # that are encoded at a time, at most
_FEW = 2**11  # numbers that cost no more than one: of short rows, more are encoded at a time
_MOST_DIM = 10**12  # more than any model has, and counted exactly in floats


@dataclass(frozen=True)
class Image:
    """All that an accountant may know of an encoder: how far one example can move the sum.

    The move has an L2 norm of at most `norm`; and, unless `profiles` is empty, its sorted magnitudes in each block of
    coordinates are at most those of some profile of that block's set.
    """

    norm: float
    profiles: tuple[ProfileSet, ...] = ()

    def for_microbatches(self) -> Image:
        """The image for micro-batches: one example turns one encoded vector into another one.

        The difference of two vectors within psi, in different orders, is at most psi_s + psi_r at rank s + r - d: of d
        indices, s have a first part of at most psi_s and r a second part of at most psi_r, so s + r - d have both.
        Twice psi is NOT enough: with psi = (0, 1) the difference can be (1, 1).
        """
        return Image(2 * self.norm, tuple(_difference(block) for block in self.profiles))


def _difference(block: ProfileSet, most_levels: int = 128) -> ProfileSet:
    envelope, dim = block.envelope(), block.dim
    groups = np.array_split(np.arange(len(envelope.counts)), min(most_levels, len(envelope.counts)))
    levels = np.array([envelope.levels[0, group[-1]] for group in groups])  # rounded up within a group
    ends = np.cumsum([envelope.counts[group].sum() for group in groups])
    ranks = (ends[:, None] + ends[None, :] - dim).ravel()
    sums = (levels[:, None] + levels[None, :]).ravel()
    useful = ranks > 0
    ranks, sums = ranks[useful], sums[useful]
    order = np.argsort(ranks, kind="stable")
    ranks, sums = ranks[order], sums[order]
    least = np.minimum.accumulate(sums[::-1])[::-1]  # of all pairs that reach this rank or a higher one
    edges, first = np.unique(ranks, return_index=True)
    return ProfileSet(least[first][None], np.diff(edges, prepend=0))


@lru_cache(maxsize=32)
def _largest(encoder: Encoder) -> float:
    image = encoder._image_of_one  # of some encoders millions of numbers
    return max((float(block.levels.max()) for block in image.profiles), default=image.norm)


class Encoder(Spec):
    """A map from any gradient into a known image, applied to each example alone, and summed.

    `encode` is the reference, on any device. `encode_sum` takes the native kernel where there is one for the encoder
    and the gradients are float32 in the processor's memory; it finds ranks by buckets of magnitude, within the same
    image.

    `dim` may be None while something else, a model, is yet to give it. `micro_batch` m > 1 encodes averages over
    groups of m examples (expected); each example draws its group independently, so that it touches one group only.

    **Formal guarantees.** `encode` is total: a row with a NaN or an infinity counts as zero, an empty batch sums to
    zero, and every encoded row lies in the image exactly, in float64.
    """

    dim: int | None
    radius: float
    micro_batch: int

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """A few members of dimension 50, for tests and for error messages."""

    @property
    @abstractmethod
    def _image_of_one(self) -> Image:
        """The image of one encoding."""

    @abstractmethod
    def _encode(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode finite float64 rows (B, d), B > 0."""

    def kernel(self) -> cpu.Kernel | None:
        """The native kernel made ready for this encoder, None where the reference encodes."""
        return None

    def __post_init__(self) -> None:
        if self.dim is not None:
            self._set(dim=whole("dim", self.dim, least=1, most=_MOST_DIM))
        self._set(radius=positive("radius", self.radius), micro_batch=whole("micro_batch", self.micro_batch, least=1))

    @property
    def known_dim(self) -> int:
        """The dimension, or an error where it is still open."""
        if self.dim is None:
            raise InvalidInput(f"{self!r} has no dimension yet.", hint="give dim=..., the number of trained parameters")
        return self.dim

    @property
    def image(self) -> Image:
        """How far one example can move the sum."""
        return self._image_of_one if self.micro_batch == 1 else self._image_of_one.for_microbatches()

    @property
    def exchanged(self) -> Image:
        """How far the sum can move where one example takes the place of another, in its group if there are groups."""
        return self._image_of_one.for_microbatches()

    @property
    def jumps(self) -> bool:
        """Whether the last bit of a gradient may move its encoding much further than the gradient; assumed of others.

        Such an encoder is used only if no bit of a gradient depends on other examples.
        """
        return True

    @property
    def max_coordinate(self) -> float:
        """What no coordinate of an encoded row exceeds."""
        return _largest(self)

    @property
    def quantum(self) -> float:
        """Coordinates of encoded rows are multiples of this power of two, so that sums of them are exact."""
        return spacing(self.max_coordinate)

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """Encoded rows, float64 (B, d), of gradients `rows` (B, d).

        >>> from noisette.encoders import L2
        >>> L2(dim=2, radius=5.0).encode(torch.tensor([[30.0, 40.0], [float("nan"), 1.0]])).round(decimals=4)
        tensor([[3., 4.],
                [0., 0.]], dtype=torch.float64)
        """
        self._check(rows)
        rows = reference.finite_rows(rows)
        if not len(rows):
            return rows
        # always as many rows at a time: sums and products round by the shapes that they are given
        size = max(1, min(max(_ROWS, _FEW // self.known_dim), _NUMBERS // self.known_dim))
        missing = rows.new_zeros(-len(rows) % size, self.known_dim)
        parts = torch.split(torch.cat([rows, missing]) if len(missing) else rows, size)
        step = self.quantum
        return torch.cat([toward_zero(self._encode(part), step) for part in parts])[: len(rows)]

    def _check(self, rows: torch.Tensor) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.known_dim:
            raise InvalidInput(
                f"gradients of shape {tuple(rows.shape)} do not fit an encoder of dimension {self.dim}.",
                hint="give one row of all trained parameters for every example",
            )
        if not rows.is_floating_point():
            raise InvalidInput(
                f"gradients have dtype {rows.dtype}, not a floating-point one.", hint="convert them first"
            )

    def encode_sum(self, rows: torch.Tensor, groups: torch.Tensor | None = None) -> Private:
        """The sum of encodings of gradients `rows` (B, d), private.

        With `groups` (B,), each group's gradients are put together, then encoded as one: averaged where they are those
        of one unit; summed and divided by the public `micro_batch` where each example drew its group. All examples of
        a group must be in one call.

        >>> from noisette.encoders import L2
        >>> L2(dim=2).encode_sum(torch.randn(5, 2))
        Private(dim=2)
        """
        if groups is None and self.micro_batch > 1:
            raise InvalidInput(
                f"micro_batch is {self.micro_batch} and groups are missing.",
                hint="give the group that each example drew",
            )
        if groups is not None:
            rows = self._grouped(rows, groups)
        kernel = self.kernel() if cpu.kernel_supports(rows) else None
        if kernel is None:
            return Private(self.encode(rows).sum(dim=0))
        self._check(rows)
        return Private(kernel.rows_sum(rows))

    def _grouped(self, rows: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        self._check(rows)
        if groups.shape != rows.shape[:1] or groups.is_floating_point():
            raise InvalidInput(
                f"groups of shape {tuple(groups.shape)} do not fit.", hint="give one integer for every example"
            )
        _, index, members = torch.unique(groups, return_inverse=True, return_counts=True)
        totals = torch.zeros(len(members), rows.shape[1], dtype=torch.float64, device=rows.device)
        totals.index_add_(0, index, reference.finite_rows(rows))
        return totals / (members[:, None] if self.micro_batch == 1 else self.micro_batch)
