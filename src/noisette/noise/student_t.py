"""Student-t noise in location-scale form, as in the paper: scale and df are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from scipy import special

from noisette import _native
from noisette.noise._domain import Domain
from noisette.noise._loss_regions import log_quadratic_ratio, quadratic
from noisette.noise._sampling_error import Accuracy
from noisette.noise.base import Array, Noise
from noisette.random import Generator


@dataclass(frozen=True)
class StudentT(Noise):
    """Student-t law with `df` degrees of freedom; its variance is scale**2 * df / (df - 2).

    >>> StudentT(df=9, scale=1.0).fisher_information
    0.8333333333333334
    """

    df: float
    scale: float | None = None
    certified: ClassVar[bool] = True
    # below, samples leave the range of a float; above, the law is Gaussian to six digits
    domain: ClassVar[Domain] = Domain(parameters={"df": (0.2, 1e6)})
    survival_rel_error: ClassVar[float] = 2.0**-45

    @property
    def sampling_error(self) -> Accuracy | None:  # type: ignore[override]
        """Exponents of up to 140 / df cost as many ulps; below 1, tails are so long that nothing is stated."""
        return Accuracy(position=16 + 100 / self.df) if self.df >= 1 else None

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(9, 1.0), cls(3, 0.5), cls(1.5, 2.0), cls(30, 1.0)

    def _log_prob(self, x: Array) -> Array:
        v = self.df
        # a quotient of two gammas, whose logarithms cancel for large v; Stirling's series is exact there
        series = -0.5 * math.log(2 * math.pi) - 1 / (4 * v) + 1 / (24 * v**3)
        constant = series if v > 1e3 else -special.betaln(v / 2, 0.5) - 0.5 * math.log(v)
        return np.asarray(constant - (v + 1) / 2 * np.log1p(x * x / v))

    def _standard_sf(self, x: Array) -> Array:
        return np.asarray(special.stdtr(self.df, -x))

    def _abs_quantile(self, u: Array) -> Array:
        return np.asarray(-special.stdtrit(self.df, u / 2))

    def _sample(self, n: int, generator: Generator) -> Array:
        # Bailey's polar form: exact, and far faster than inverting the distribution function. Without the kernel torch,
        # since it has vectors for it on every processor, and numpy on few.
        isa = _native.variant()
        if isa is None:
            signs, angle = (torch.from_numpy(part) for part in generator.signed_uniforms(n))
            return self._turned(torch.from_numpy(generator.uniforms_128(n)), angle.mul_(signs)).numpy()
        draws = np.empty(n)
        _native.native.student_draws(
            generator.random_words(4 * n), self.df, draws, isa
        )  # the same words, in the same places
        return draws

    def _turned(self, radius: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        """Draws (n,) from uniforms on (0, 1] and on [-1, 1], (n,) both, which are overwritten.

        An angle from the other axis: of a sine near zero every bit counts, since the radius may be huge.
        """
        radius.log_().mul_(-2 / self.df).expm1_().mul_(self.df).sqrt_()
        return radius.mul_(angle.mul_(math.pi / 2).sin_())

    def _loss(self, y: Array, tau: float) -> Array:
        return (self.df + 1) / 2 * log_quadratic_ratio(y, tau, df=self.df)

    def _largest_loss(self, tau: Array) -> Array:
        return (self.df + 1) * np.arcsinh(tau / (2 * math.sqrt(self.df)))

    def _score(self, x: Array) -> Array:
        return (self.df + 1) * x / (self.df + x * x)

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        return quadratic(eps, tau, df=self.df)

    def _std(self) -> float:
        return math.sqrt(self.df / (self.df - 2)) if self.df > 2 else math.inf

    def _mean_abs(self) -> float:
        v = self.df
        if v <= 1:
            return math.inf
        gammas = math.exp(special.gammaln((v + 1) / 2) - special.gammaln(v / 2))
        return 2 * math.sqrt(v) * gammas / ((v - 1) * math.sqrt(math.pi))

    def _fisher(self) -> float:
        return (self.df + 1) / (self.df + 3)
