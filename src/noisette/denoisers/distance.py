"""The paper's denoising: a distance between the released values and the noise law, times the vector."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from noisette._private import Released
from noisette._spec import positive, real
from noisette.denoisers.base import Denoiser, State, check_released
from noisette.errors import InvalidInput
from noisette.noise import Noise
from noisette.noise.base import Array

__all__ = ["DistanceShrinkage"]


@dataclass(frozen=True)
class DistanceShrinkage(Denoiser):
    """Scale the vector by how far its values, taken as one sample, are from the noise law.

    A vector that is all noise is far from useful and close to its law, so it is scaled down. The factor is
    ``min(multiplier * distance, cap)``, and 0 where the distance is below `threshold`: the options of the authors'
    own variant; the paper's formula is the default. A leaf says one thing, its `_distance`.

    A distance never falls to 0 on pure noise: with n coordinates it stays at about 1 / sqrt(n), so late in training,
    when noise outweighs the gradients, the factor is nearly constant and acts as a smaller learning rate.
    The comparison is with the law of the noise as released: in a chain, put a distance first.
    """

    multiplier: float = 1.0
    cap: float | None = None
    threshold: float = 0.0

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(multiplier=2.0, cap=0.25, threshold=0.005)

    def __post_init__(self) -> None:
        self._set(multiplier=positive("multiplier", self.multiplier), threshold=real("threshold", self.threshold))
        if self.cap is not None:
            self._set(cap=positive("cap", self.cap, hint="leave cap out for no upper limit"))
        if self.threshold < 0:
            raise InvalidInput(f"threshold is {self.threshold!r}, below 0.", hint="give 0 for no threshold")

    @abstractmethod
    def _distance(self, ascending: Array, noise: Noise) -> float:
        """The distance between the empirical law of `ascending` (n,) and `noise`, free of units."""

    def distance(self, released: Released) -> float:
        """The distance between the values of a released vector and its noise law.

        >>> from noisette.noise import Gaussian
        >>> from noisette.denoisers import KS
        >>> KS().distance(Released(torch.zeros(5).double(), Gaussian(scale=1.0), reproducible=False))
        0.5
        """
        check_released(released)
        self._validate(released.noise, released.values.numel())
        return self._measure(released)

    def _measure(self, released: Released) -> float:
        # np.sort: twenty times as fast as torch.sort on a processor
        return self._distance(np.sort(released.values.detach().cpu().numpy()), released.noise)

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        distance = self._measure(released)
        factor = self.multiplier * distance if distance >= self.threshold else 0.0
        if self.cap is not None:
            factor = min(factor, self.cap)
        return factor * released.values, dict(state)
