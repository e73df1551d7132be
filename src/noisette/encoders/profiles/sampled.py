"""Profiles that are drawn, as in the paper, or measured on public data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from noisette._spec import entries, real, whole
from noisette.encoders.profiles.base import MOST_LEVELS, MOST_VALUES, Array, Profiles, ProfileSet, rank_counts
from noisette.errors import InvalidInput
from noisette.random import Generator

_MOST_COUNT = 10**12


@dataclass(frozen=True)
class PaperGaussian(Profiles):
    """The paper's set: n vectors of iid Gaussian samples, magnitudes below `threshold` set to zero, sorted, unit norm.

    With `levels`, each is rounded to that many levels, and only the order statistics between them are drawn: the same
    law, for models whose n * dim numbers no memory holds.

    >>> PaperGaussian(n=3).build(10)[0].levels.shape
    (3, 10)
    >>> PaperGaussian(n=3, levels=16).build(10_000_000)[0].levels.shape
    (3, 16)
    """

    n: int = 1000
    seed: int = 0
    threshold: float = 1e-5
    levels: int | None = None

    def __post_init__(self) -> None:
        self._set(
            n=whole("n", self.n, least=1),
            seed=whole("seed", self.seed, least=0),
            threshold=real("threshold", self.threshold),
        )
        if self.levels is not None:
            self._set(levels=whole("levels", self.levels, least=1, most=MOST_LEVELS))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(n=7), cls(n=3, seed=1, threshold=0.5), cls(n=3, levels=10)

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        rounded = self.levels is not None and self.levels < dim
        if self.n * (self.levels if rounded and self.levels else dim) > MOST_VALUES:
            raise InvalidInput(
                f"{self.n} sampled profiles of {dim} coordinates do not fit into memory.",
                hint="give levels=512, or use HalfNormal(), their limit",
            )
        if rounded and self.levels:
            return (self._rounded(rank_counts(dim, self.levels)),)
        # the library's own stream: the same profiles for a seed whatever numpy's version
        u = Generator(self.seed, purpose="profiles").uniforms(self.n * dim).reshape(self.n, dim)
        return (self._normalized(np.sort(-special.ndtri(u / 2), axis=1), np.ones(dim, dtype=np.int64)),)

    def _rounded(self, counts: npt.NDArray[np.int64]) -> ProfileSet:
        """Blocks of `counts` ranks: the gaps between uniform order statistics are gamma variables over their sum.

        Within a block the ranks are taken as even, whose root mean square is the level.
        """
        shapes = np.append(counts, 1).astype(np.float64)
        u = Generator(self.seed, purpose="profiles").uniforms(self.n * len(shapes)).reshape(self.n, -1)
        gaps = special.gammainccinv(shapes, u)
        ends = np.cumsum(gaps, axis=1) / gaps.sum(axis=1, keepdims=True)
        starts = np.concatenate([np.zeros((self.n, 1)), ends[:, :-2]], axis=1)
        inner = (np.arange(16) + 0.5) / 16
        squares = np.zeros_like(starts)
        for share in inner:
            squares += special.ndtri((1 - starts - (ends[:, :-1] - starts) * share) / 2) ** 2 / len(inner)
        return self._normalized(np.sqrt(squares), counts)

    def _normalized(self, magnitudes: Array, counts: npt.NDArray[np.int64]) -> ProfileSet:
        magnitudes[magnitudes < self.threshold] = 0.0
        return ProfileSet.normalized(np.maximum.accumulate(magnitudes, axis=1), counts)


@dataclass(frozen=True)
class Empirical(Profiles):
    """A measured profile: (level, count) pairs from gradients of PUBLIC or synthetic data.

    >>> profile = Empirical.from_gradients(torch.randn(8, 100), levels=10)
    >>> profile.build(100)[0].dim
    100
    """

    levels: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        self._set(
            levels=tuple(real("level", level) for level in entries("levels", self.levels)),
            counts=tuple(whole("count", count, least=1, most=_MOST_COUNT) for count in entries("counts", self.counts)),
        )
        if not any(self.levels):
            raise InvalidInput(
                "all levels of the profile are 0: nothing would be released.", hint="measure it on gradients that move"
            )
        ProfileSet(np.array([self.levels]), np.array(self.counts, dtype=np.int64)).within(1.0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(levels=(0.0, 0.05, 0.3), counts=(20, 25, 5)), cls(levels=(0.14,), counts=(50,))

    @classmethod
    def from_gradients(cls, rows: torch.Tensor, levels: int = 64) -> Self:
        """The mean sorted profile of per-example gradients `rows` (B, d), which must not come from private data."""
        magnitudes = np.sort(rows.detach().double().abs().cpu().numpy(), axis=1)
        norms = np.linalg.norm(magnitudes, axis=1, keepdims=True)
        kept = np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)
        if not kept.any():
            raise InvalidInput("no gradient is finite and non-zero.", hint="give gradients of a few public examples")
        mean = np.mean(magnitudes[kept] / norms[kept], axis=0)
        counts = rank_counts(len(mean), levels)
        squares = np.add.reduceat(mean * mean, np.cumsum(counts) - counts) / counts
        built = ProfileSet.normalized(np.sqrt(squares), counts)
        return cls(tuple(built.levels[0].tolist()), tuple(counts.tolist()))

    def build(self, dim: int) -> tuple[ProfileSet, ...]:
        if dim != sum(self.counts):
            raise InvalidInput(
                f"the profile was measured in {sum(self.counts)} dimensions, the encoder has {dim}.",
                hint="measure it on the model that will be trained",
            )
        return (ProfileSet(np.array([self.levels]), np.array(self.counts, dtype=np.int64)),)
