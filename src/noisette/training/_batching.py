"""Poisson sampling, owned by the library: what is drawn is what is accounted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisette._spec import whole
from noisette.random import Generator

__all__ = ["PoissonSampler"]


class PoissonSampler:
    """Every example joins every batch with probability `rate`, independently, from the library's own generator.

    Batches have random sizes, and an empty one is a batch like any other. One with more than `most` examples is cut to
    `most`, chosen at random anew each time. Where units are drawn, read units for examples.

    >>> sampler = PoissonSampler(examples=1000, rate=0.5, generator=Generator(seed=0, purpose="sampling"))
    >>> 400 < len(sampler.draw()) < 600
    True
    """

    def __init__(self, examples: int, rate: float, generator: Generator, most: int | None = None) -> None:
        self._examples, self._rate, self._generator = whole("examples", examples, least=1), rate, generator
        self._most = examples if most is None else most

    def draw(self) -> npt.NDArray[np.int64]:
        """Indices of a fresh batch, ascending."""
        index = np.flatnonzero(self._generator.bernoulli(self._examples, self._rate))
        return self._cut(index) if len(index) > self._most else index

    def _cut(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """`most` of the `index`, each choice as likely as any other, ascending."""
        chosen = np.argsort(self._generator.uniforms(len(index)), kind="stable")[: self._most]
        return np.sort(index[chosen])

    def groups(self, members: int, groups: int) -> npt.NDArray[np.int64]:
        """A group for each of `members` examples, each drawn independently of all others."""
        return np.minimum((self._generator.uniforms(members) * groups).astype(np.int64), groups - 1)
