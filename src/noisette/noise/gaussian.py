"""Gaussian noise: the law of DPSGD, and the only one whose worst case over an L2 ball is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from scipy import special

from noisette import _native
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise
from noisette.random import Generator


@dataclass(frozen=True)
class Gaussian(Noise):
    """Normal law; `scale` is its standard deviation.

    >>> Gaussian(scale=1.1).std
    1.1
    """

    scale: float | None = None
    certified: ClassVar[bool] = True
    # an angle is right up to 10 of 2**-52, and all but one in 2**100 draws lie within 12 of zero before it turns them
    sampling_error: ClassVar[Accuracy | None] = Accuracy(position=128, together=2)
    rotation_invariant: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(1.0), cls(1.1), cls(0.456)

    def _log_prob(self, x: Array) -> Array:
        return -0.5 * x * x - 0.5 * math.log(2 * math.pi)

    def _standard_sf(self, x: Array) -> Array:
        return np.asarray(special.ndtr(-x))

    def _abs_quantile(self, u: Array) -> Array:
        return np.asarray(-special.ndtri(u / 2))

    def _sample(self, n: int, generator: Generator) -> Array:
        # Box and Muller's pairs: exact, and faster than inverting the distribution function. Without the kernel torch,
        # since it has vectors for it on every processor, and numpy on few.
        half, isa = (n + 1) // 2, _native.variant()
        if isa is None:
            radius, angle = torch.from_numpy(generator.uniforms_128(half)), torch.from_numpy(generator.uniforms(half))
            return self._turned(radius, angle).view(-1)[:n].numpy()
        draws = np.empty(2 * half)
        _native.native.gaussian_pairs(
            generator.random_words(3 * half), draws, isa
        )  # the same words, in the same places
        return draws[:n]

    def _turned(self, radius: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        """Pairs (2, n) of draws from uniforms (n,) and (n,), which are overwritten."""
        radius.log_().mul_(-2).sqrt_()
        angle.mul_(2 * math.pi)
        return torch.stack([angle.cos(), angle.sin()]).mul_(radius)

    def _loss(self, y: Array, tau: float) -> Array:
        return tau * (y + tau / 2)

    def _score(self, x: Array) -> Array:
        return x

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return eps / tau - tau / 2, np.full_like(eps, np.inf)

    def _log_moments(self, orders: Array, tau: float) -> Array | None:
        return orders * (orders - 1) * tau * tau / 2

    def _std(self) -> float:
        return 1.0

    def _mean_abs(self) -> float:
        return math.sqrt(2 / math.pi)

    def _fisher(self) -> float:
        return 1.0
