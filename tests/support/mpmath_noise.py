"""The laws once more, written from their definitions in mpmath: an independent witness for the float64 code.

Everything here is for scale 1, x >= 0 in `sf`, and as slow as it likes to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import mpmath as mp

from noisette import Noise
from noisette.noise import (
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Logistic,
    ScipyNoise,
    Sech,
    StudentT,
    VarianceGamma,
)

mp.mp.dps = 34


@dataclass(frozen=True)
class Law:
    log_prob: Callable[[mp.mpf], mp.mpf]
    sf: Callable[[mp.mpf], mp.mpf]

    def survival(self, x: mp.mpf) -> mp.mpf:
        return self.sf(x) if x >= 0 else 1 - self.sf(-x)


def _student(v: mp.mpf) -> Law:
    constant = mp.loggamma((v + 1) / 2) - mp.loggamma(v / 2) - mp.log(v * mp.pi) / 2
    return Law(
        lambda x: constant - (v + 1) / 2 * mp.log1p(x * x / v),
        lambda x: mp.betainc(v / 2, mp.mpf(1) / 2, 0, v / (v + x * x), regularized=True) / 2,
    )


def _exponential_power(b: mp.mpf) -> Law:
    constant = mp.log(b / 2) - mp.loggamma(1 / b)
    return Law(
        lambda x: constant - abs(x) ** b,
        lambda x: mp.gammainc(1 / b, x**b, mp.inf, regularized=True) / 2,
    )


def _variance_gamma(shape: mp.mpf) -> Law:
    nu = shape - mp.mpf(1) / 2
    constant = -mp.log(mp.pi) / 2 - mp.loggamma(shape) - nu * mp.log(2)

    def log_prob(x: mp.mpf) -> mp.mpf:
        y = abs(x)
        if y == 0:
            return constant + (nu - 1) * mp.log(2) + mp.loggamma(nu)
        return constant + nu * mp.log(y) + mp.log(mp.besselk(nu, y))

    def sf(x: mp.mpf) -> mp.mpf:
        """A Gaussian whose variance is twice a gamma draw: no Bessel function in sight.

        The mixture is integrated by the trapezoid rule in the logarithm of the draw, which is exact to all digits.
        """
        if x == 0:
            return mp.mpf(1) / 2
        step = mp.mpf(1) / 20
        highest = mp.log(200 + 4 * shape + 2 * x)
        lowest = max(-100 / shape, 2 * mp.log(x) - 10)
        terms = []
        at = lowest
        while at < highest:
            terms.append(mp.exp(shape * at - mp.exp(at)) * mp.erfc(x / 2 * mp.exp(-at / 2)))
            at += step
        return step * mp.fsum(terms) / (2 * mp.gamma(shape))

    return Law(log_prob, sf)


def _sech(factor: mp.mpf) -> Law:
    """Density proportional to sech(factor x)."""
    return Law(
        lambda x: mp.log(factor / mp.pi) - mp.log(mp.cosh(factor * x)),
        lambda x: 2 / mp.pi * mp.atan(mp.exp(-factor * x)),
    )


def reference(noise: Noise) -> Law:
    """The law of `noise` at scale 1."""
    match noise:
        case Gaussian():
            return Law(lambda x: -x * x / 2 - mp.log(2 * mp.pi) / 2, lambda x: mp.erfc(x / mp.sqrt(2)) / 2)
        case Laplace():
            return Law(lambda x: -abs(x) - mp.log(2), lambda x: mp.exp(-x) / 2)
        case Cauchy():
            return Law(lambda x: -mp.log(mp.pi * (1 + x * x)), lambda x: mp.atan2(1, x) / mp.pi)
        case Logistic():
            return Law(lambda x: -abs(x) - 2 * mp.log1p(mp.exp(-abs(x))), lambda x: 1 / (1 + mp.exp(x)))
        case Sech():
            return _sech(mp.pi / 2)
        case StudentT():
            return _student(mp.mpf(noise.df))
        case GeneralizedGaussian():
            return _exponential_power(mp.mpf(noise.shape))
        case VarianceGamma():
            return _variance_gamma(mp.mpf(noise.shape))
        case ScipyNoise(name="t"):
            return _student(mp.mpf(noise.shapes[0]))
        case ScipyNoise(name="gennorm"):
            return _exponential_power(mp.mpf(noise.shapes[0]))
        case ScipyNoise(name="hypsecant"):
            return _sech(mp.mpf(1))
    raise LookupError(noise)


def hockey_stick(law: Law, eps: float, tau: float) -> mp.mpf:
    """The integral of the positive part of z(x - tau) - e^eps z(x), from the crossings of the likelihood ratio.

    Crossings are searched for on both sides of tau/2, about which the log ratio is odd, on a grid that is finer
    toward 0, tau/2 and tau.
    """
    eps, tau = mp.mpf(eps), mp.mpf(tau)

    def loss(x: mp.mpf) -> mp.mpf:
        return law.log_prob(x - tau) - law.log_prob(x) - eps

    steps = [tau / 2 * mp.mpf(3) ** k for k in range(-20, 26)] + [mp.mpf(1.15) ** k for k in range(-20, 20)]
    around = sorted({p + s for p in (tau / 2, tau, mp.mpf(0)) for s in (*steps, *(-s for s in steps), mp.mpf(0))})
    around = [x for x in around if abs(x) < mp.mpf(10) ** 12 * max(tau, 1)]
    values = [loss(x) for x in around]
    total = mp.mpf(0)
    start = -mp.inf if values[0] > 0 else None
    for (a, b), (fa, fb) in zip(pairwise(around), pairwise(values), strict=True):
        if (fa > 0) == (fb > 0):
            continue
        root = mp.findroot(loss, (a, b), solver="anderson", tol=mp.mpf(10) ** -30, verify=False) if fa and fb else a
        if fb > 0:
            start = root
        else:
            total += _mass(law, start, root, eps, tau)
            start = None
    if start is not None:
        total += _mass(law, start, mp.inf, eps, tau)
    return total


def _mass(law: Law, lo: mp.mpf, hi: mp.mpf, eps: mp.mpf, tau: mp.mpf) -> mp.mpf:
    def between(a: mp.mpf, b: mp.mpf) -> mp.mpf:
        upper = mp.mpf(0) if b == mp.inf else law.survival(b)
        return (mp.mpf(1) if a == -mp.inf else law.survival(a)) - upper

    return between(lo - tau, hi - tau) - mp.exp(eps) * between(lo, hi)
