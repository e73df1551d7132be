"""Poisson sampling, owned by the library: what is drawn is what is accounted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisette.generator import Generator
from noisette.spec import whole

__all__ = ["PoissonSampler"]


class PoissonSampler:
    """Every example joins every batch with probability `rate`, independently, from the library's own generator.

    Batches have random sizes, and an empty one is a batch like any other.

    >>> sampler = PoissonSampler(examples=1000, rate=0.5, generator=Generator(seed=0, purpose="sampling"))
    >>> 400 < len(sampler.draw()) < 600
    True
    """

    def __init__(self, examples: int, rate: float, generator: Generator) -> None:
        self._examples, self._rate, self._generator = whole("examples", examples, least=1), rate, generator

    def draw(self) -> npt.NDArray[np.int64]:
        """Indices of a fresh batch, ascending."""
        return np.flatnonzero(self._generator.uniforms(self._examples) <= self._rate)

    def groups(self, members: int, groups: int) -> npt.NDArray[np.int64]:
        """A group for each of `members` examples, each drawn independently of all others."""
        return np.minimum((self._generator.uniforms(members) * groups).astype(np.int64), groups - 1)
