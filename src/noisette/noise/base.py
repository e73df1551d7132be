"""What a noise law must say about itself, and what follows from it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from noisette._spec import Spec
from noisette.errors import InvalidInput
from noisette.noise._domain import Domain
from noisette.noise._sampling_error import Accuracy
from noisette.random import Generator

__all__ = ["Array", "Noise"]

_BLOCK = 1 << 14  # draws at a time

Array = npt.NDArray[np.float64]

_PANELS = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 13), np.geomspace(1.0, 1e8, 49)[1:]])
_BISECTIONS = 90


class Noise(Spec):
    """A law symmetric about 0 and non-increasing in ``|x|``, with the whole line as support.

    A leaf describes the standard law (scale 1) by three methods on numpy arrays: `_log_prob`, `_standard_sf` for x >= 0
    and `_abs_quantile`, the inverse of ``P(|X| >= m)``. All the rest follows; a leaf overrides what it knows in closed
    form. The sampling half and the accounting half are one class, so they cannot drift apart.

    `scale` is absolute, on the released sum; None leaves it open for calibration.

    **Formal guarantees.** `certified` says that the leaf's author has proved symmetry, unimodality and the shape of the
    likelihood ratio that `_loss_mode` describes. Without it every epsilon is an estimate, not a bound.
    """

    scale: float | None
    certified: ClassVar[bool] = False
    rotation_invariant: ClassVar[bool] = False
    domain: ClassVar[Domain] = Domain()
    """The parameters, shifts and losses for which all that is said here holds; anything else is refused."""
    sampling_error: ClassVar[Accuracy | None] = None
    """How close draws come to the law; None where that is not known, and epsilon is for real numbers only."""
    survival_rel_error: ClassVar[float] = 2.0**-50
    """Relative error of `_standard_sf` for each unit of 1 + abs(log sf), which accounting adds on the safe side."""

    # -- what a leaf must say --------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """A few valid members with a scale, for tests and for error messages."""

    @abstractmethod
    def _log_prob(self, x: Array) -> Array:
        """Log density of the standard law."""

    @abstractmethod
    def _standard_sf(self, x: Array) -> Array:
        """P(X >= x) of the standard law for x >= 0, to full relative accuracy."""

    @abstractmethod
    def _abs_quantile(self, u: Array) -> Array:
        """The m >= 0 with P(|X| >= m) = u, for u in (0, 1]."""

    # -- what a leaf may know better -------------------------------------------------------------------------------

    def _sample(self, n: int, generator: Generator) -> Array:
        signs, u = generator.signed_uniforms(n)
        return signs * self._abs_quantile(u)

    def _score(self, x: Array) -> Array:
        """-z'(x)/z(x) of the standard law."""
        step = 1e-6 * np.maximum(1.0, np.abs(x))
        return (self._log_prob(x - step) - self._log_prob(x + step)) / (2 * step)

    def _loss(self, y: Array, tau: float) -> Array:
        """Log z(y) - log z(y + tau): the loss at x = y + tau. A leaf may know a form in which nothing cancels."""
        return self._log_prob(y) - self._log_prob(y + tau)

    def _loss_mode(self, tau: float) -> float:
        """The y >= -tau/2 where the loss is largest: it rises up to there and falls beyond.

        Infinite for log-concave laws. The default looks for it, which proves nothing: see `certified`.
        """
        far = self._support_end()
        y = np.concatenate([np.linspace(-tau / 2, tau, 4001), np.geomspace(tau, max(far, 2 * tau), 4000)])
        loss = self._loss(y, tau)
        if np.any(np.isnan(loss)):
            return math.nan
        best = int(np.argmax(loss))
        return math.inf if loss[best] <= loss[-1] * (1 + 1e-9) else float(y[best])

    def _loss_interval(self, eps: Array, tau: float) -> tuple[Array, Array]:
        """For eps >= 0, the ends (lo, hi) of {y: loss > eps}; lo = hi = inf only where it is empty for certain.

        Ends are measured from tau, where the shifted law has its middle: far out, x = y + tau would round them away.
        """
        far = self._support_end()
        summit = min(self._loss_mode(tau), far)
        lo = self._bisect(eps, tau, np.full_like(eps, -tau / 2), np.full_like(eps, summit))
        hi = np.full_like(eps, np.inf)
        if summit < far:
            falls = ~(self._loss(np.array(far), tau) > eps)
            hi = np.where(falls, self._bisect(eps, tau, np.full_like(eps, far), np.full_like(eps, summit)), np.inf)
        top = self._loss(np.array(summit), tau)
        empty = eps >= top + 2.0**-46 * (1 + top)  # beyond what rounding could have hidden
        return np.where(empty, np.inf, lo), np.where(empty, np.inf, hi)

    def _support_end(self) -> float:
        """A point beyond which the law has no mass that a float could tell from zero."""
        return min(float(self._abs_quantile(np.array(1e-280))), 1e100)

    def _log_moments(self, orders: Array, tau: float) -> Array | None:  # noqa: ARG002 - leaves use them
        """Closed form of log E_k(tau) of the standard law for each order k, E_k = E[(z(x - tau) / z(x))^k]; or None."""
        return None

    def _largest_loss(self, tau: Array) -> Array:
        """No outcome of the standard law has a larger loss; infinite where nothing bounds it, or no bound is proved."""
        return np.full_like(tau, np.inf)

    def _std(self) -> float:
        return math.sqrt(self._expect(lambda x: x * x))

    def _mean_abs(self) -> float:
        return self._expect(lambda x: x)

    def _fisher(self) -> float:
        return self._expect(lambda x: self._score(x) ** 2)

    # -- what everybody else uses ----------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        for name in self.domain.parameters:
            self._set(**{name: self.domain.parameter(name, getattr(self, name))})
        if self.scale is not None:
            hint = "leave it out where something calibrates it"
            self._set(scale=self.domain.parameter("scale", self.scale, hint))

    @property
    def known_scale(self) -> float:
        """The scale, or an error where it is still open."""
        if self.scale is None:
            raise InvalidInput(
                f"{self!r} has no scale yet.",
                hint="give scale=..., or let calibrate(mechanism, epsilon, delta) find it",
            )
        return self.scale

    def sample(self, shape: tuple[int, ...], generator: Generator, device: str | torch.device = "cpu") -> torch.Tensor:
        """Independent draws, float64, of any shape and on any device.

        >>> from noisette.noise import Gaussian
        >>> Gaussian(scale=2.0).sample((3, 4), Generator()).shape
        torch.Size([3, 4])
        """
        made = torch.empty(math.prod(shape), dtype=torch.float64)
        flat = made.numpy()
        for start in range(0, flat.size, _BLOCK):  # so that what is computed on the way stays in the cache
            part = flat[start : start + _BLOCK]
            np.multiply(self._sample(part.size, generator), self.known_scale, out=part)
        return made.reshape(shape).to(device)

    def log_prob(self, x: npt.ArrayLike) -> Array:
        """Log density at `x`, any shape."""
        return self._log_prob(np.asarray(x, dtype=np.float64) / self.known_scale) - math.log(self.known_scale)

    def sf(self, x: npt.ArrayLike) -> Array:
        """P(X >= x), any shape, to full relative accuracy in the upper tail."""
        return self._survival(np.asarray(x, dtype=np.float64) / self.known_scale)

    def cdf(self, x: npt.ArrayLike) -> Array:
        """P(X <= x), any shape.

        >>> from noisette.noise import Cauchy
        >>> float(Cauchy(scale=1.0).cdf(1.0))
        0.75
        """
        return self.sf(-np.asarray(x, dtype=np.float64))

    def magnitude(self, u: npt.ArrayLike) -> Array:
        """The m with P(abs(X) >= m) = u, for u in (0, 1]."""
        return self.known_scale * self._abs_quantile(np.asarray(u, dtype=np.float64))

    def score(self, x: npt.ArrayLike) -> Array:
        """-z'(x)/z(x), the derivative that the Fisher information is the mean square of, any shape."""
        return self._score(np.asarray(x, dtype=np.float64) / self.known_scale) / self.known_scale

    @property
    def std(self) -> float:
        """Standard deviation; infinite where the law has none."""
        return self.known_scale * self._std()

    @property
    def mean_abs(self) -> float:
        """Mean absolute value; infinite where the law has none."""
        return self.known_scale * self._mean_abs()

    @property
    def fisher_information(self) -> float:
        """Fisher information of the location; infinite where the density is too sharp."""
        return self._fisher() / self.known_scale**2

    def hockey_stick(self, eps: npt.ArrayLike, tau: float) -> Array:
        """H_{e^eps}(z shifted by tau || z) = sup over sets A of P(X + tau in A) - e^eps P(X in A), shape of `eps`.

        Rounding errors are added on the safe side, so for a certified law this is an upper bound.

        >>> from noisette.noise import Laplace
        >>> Laplace(scale=1.0).hockey_stick([0.0, 1.0], tau=1.0).round(4).tolist()
        [0.3935, 0.0]
        """
        eps = np.asarray(eps, dtype=np.float64)
        if np.any(np.isnan(eps)):
            raise InvalidInput("eps is not a number.", hint="give losses as numbers")
        shift = self.domain.shift(tau, self.known_scale)
        # H_g = 1 - g + g H_{1/g}, for x -> tau - x swaps the pair
        forward = np.minimum(np.abs(eps), self.domain.losses)
        with np.errstate(all="ignore"):  # whatever is undefined on the way is decided here
            h = self._forward(forward.ravel(), shift).reshape(eps.shape) if shift else np.zeros_like(eps)
            h = np.where(np.isnan(h), 1.0, np.clip(h, 0.0, 1.0))
            back = np.minimum(eps, 0.0)
            return np.asarray(np.minimum(np.exp(back) * h - np.expm1(back), 1.0))

    def loss(self, y: npt.ArrayLike, tau: float) -> Array:
        """Log z(y) - log z(y + tau), the loss of an outcome y + tau, any shape.

        >>> from noisette.noise import Laplace
        >>> Laplace(scale=1.0).loss([-0.5, 0.0, 3.0], tau=1.0).tolist()
        [0.0, 1.0, 1.0]
        """
        with np.errstate(all="ignore"):
            return self._loss(np.asarray(y, dtype=np.float64) / self.known_scale, tau / self.known_scale)

    def largest_loss(self, tau: npt.ArrayLike) -> Array:
        """What no outcome's loss exceeds at each of the shifts `tau`; infinite where nothing bounds it.

        >>> from noisette.noise import Gaussian, Laplace
        >>> Laplace(scale=2.0).largest_loss([0.0, 1.0]).tolist(), Gaussian(scale=2.0).largest_loss([0.0, 1.0]).tolist()
        ([0.0, 0.5], [0.0, inf])
        """
        size = np.abs(np.asarray(tau, dtype=np.float64))
        self.domain.shift(size.max(initial=0.0), self.known_scale)  # the largest one is within the domain
        losses = self._largest_loss(np.maximum(size / self.known_scale, self.domain.shifts[0]))
        return np.where(size > 0, losses, 0.0)

    def log_moments(self, orders: npt.ArrayLike, tau: float) -> Array | None:
        """Log of E_k(tau) = integral of z(x - tau)^k z(x)^(1-k) dx for each order k; None without a closed form.

        >>> from noisette.noise import Gaussian
        >>> Gaussian(scale=1.0).log_moments([2, 3], tau=1.0).tolist()
        [1.0, 3.0]
        """
        k, shift = np.asarray(orders, dtype=np.float64), self.domain.shift(tau, self.known_scale)
        with np.errstate(all="ignore"):
            closed = self._log_moments(k, shift) if shift else np.zeros_like(k)
        return None if closed is None else np.where(np.isnan(closed), np.inf, closed)

    def _forward(self, eps: Array, tau: float) -> Array:
        """The curve for eps >= 0, NaN where it cannot be told."""
        lo, hi = self._loss_interval(eps, tau)
        ceiling = self._survival(lo)
        shifted = ceiling - self._survival(hi)
        inner, outer = self._survival(lo + tau), self._survival(hi + tau)
        # e^eps times a tail: in logarithms, since either factor alone may leave the range of a float
        weigh, weigh_hi = np.exp(eps + np.log(inner)), np.exp(eps + np.log(outer))
        # of what is evaluated at lo; at hi it is never larger
        margin = ceiling + weigh * (1 - np.log(np.where(inner == 0, 1.0, inner)))
        h = shifted - (weigh - weigh_hi) + 2 * self.survival_rel_error * margin
        h = np.where(np.isnan(h), ceiling, h)  # both terms overflow: the ceiling is always a bound
        return np.where(np.isposinf(lo), 0.0, np.clip(h, 0.0, ceiling))

    def _survival(self, x: Array) -> Array:
        tail = self._standard_sf(np.abs(x))
        return np.where(x >= 0, tail, 1.0 - tail)

    def _bisect(self, eps: Array, tau: float, below: Array, above: Array) -> Array:
        """The point between `below` (loss <= eps) and `above` (loss > eps) where it crosses; NaN past a NaN loss."""
        lost = np.zeros(eps.shape, dtype=bool)
        for _ in range(_BISECTIONS):
            wide = np.maximum(below, above) > 4  # halve the logarithm while far out, the distance when near
            middle = np.where(
                wide, np.sqrt(np.maximum(below, 1.0)) * np.sqrt(np.maximum(above, 1.0)), (below + above) / 2
            )
            loss = self._loss(middle, tau)
            lost |= np.isnan(loss)
            over = loss > eps
            above, below = np.where(over, middle, above), np.where(over, below, middle)
        return np.where(lost, np.nan, below)

    def _expect(self, f: Callable[[Array], Array]) -> float:
        """E f(|X|) of the standard law by quadrature; infinite where the integral diverges."""
        from scipy import integrate  # noqa: PLC0415 - few laws need it

        def integrand(x: float) -> float:
            density = math.exp(float(self._log_prob(np.array(x))))
            return float(f(np.array(x))) * density if density > 1e-290 else 0.0

        pieces = [integrate.quad(integrand, a, b, limit=200)[0] for a, b in pairwise(_PANELS)]
        total = 2.0 * math.fsum(pieces)
        tail = 2.0 * math.fsum(pieces[-5:])
        return math.inf if tail > 1e-3 * total else total
