"""Laws, parameters and shifts over many orders of magnitude, and what nobody here wrote to hold them to.

The witness integrates the positive part of z(x - tau) - e^eps z(x) at 50 digits: a quadrature of densities, which knows
nothing of distribution functions, of regions or of anything else that the code under test computes with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath as mp
import numpy as np

from noisette import Noise
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, Logistic, Sech, StudentT
from tests.support.mpmath_noise import Law, reference

NODES = np.polynomial.legendre.leggauss(14)
BELOW = mp.mpf("1e-9")
"""Relative error that the witness and the rounding of a float may have."""


def spread(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def random_law(rng: np.random.Generator) -> Noise:
    """A law of any kind with parameters from anywhere in its domain, ends included, at scale 1."""
    kind = int(rng.integers(10))
    if kind < 5:
        return (Gaussian, Laplace, Cauchy, Logistic, Sech)[kind](1.0)
    law, name = ((StudentT, "df"), (GeneralizedGaussian, "shape"))[kind % 2]
    low, high = law.domain.parameters[name]
    value = float(rng.choice([low, high, spread(rng, low, high)], p=[0.1, 0.1, 0.8]))
    return law(value, 1.0)


def random_case(number: int) -> tuple[Noise, float, float]:
    """A law, a shift from 1e-12 to 1e6 scales, and an eps below, at and above the largest loss, of either sign."""
    rng = np.random.default_rng([16, number])
    noise = random_law(rng)
    tau = spread(rng, 1e-12, 1e6)
    top = float(np.nanmax(noise.loss(np.array([0.0, tau, *noise.magnitude([0.5, 1e-3, 1e-9])]), tau)))
    eps = float(rng.choice([0.0, rng.uniform(0, 1.02), spread(rng, 1e-6, 1)])) * min(top, 650.0)
    return noise, tau, eps if rng.random() < 0.7 else -eps


def exact(noise: Noise, eps: float, tau: float) -> mp.mpf:
    """H_{e^eps}(z(. - tau) || z), a lower bound up to the error of quadrature: any set gives one."""
    # only hints: wherever panels end, the sum is the same
    chances = np.concatenate(
        [1 - np.geomspace(1e-10, 0.1, 14), np.linspace(0.8, 0.1, 7), np.geomspace(0.07, 1e-15, 20)]
    )
    places = [*noise.magnitude(chances).tolist(), *(tau * 3.0**k for k in range(-5, 6))]
    places += (8.0 ** np.arange(1, math.log(max(places), 8))).tolist()  # quantiles of heavy tails lie far apart
    with mp.workdps(50):
        law, e, shift = reference(noise), mp.mpf(eps), mp.mpf(tau)
        h = _forward(law, abs(e), shift, [mp.mpf(place) for place in places])
        return h if e >= 0 else 1 - mp.exp(e) + mp.exp(e) * h


def _forward(law: Law, eps: mp.mpf, tau: mp.mpf, places: list[mp.mpf]) -> mp.mpf:
    def over(y: mp.mpf) -> mp.mpf:
        return law.log_prob(y) - law.log_prob(y + tau) - eps

    knots = sorted({-tau / 2, *(-p for p in places if p < tau / 2), mp.mpf(0), *places})
    loss = [over(y) for y in knots]
    total = mp.mpf(0)
    for (a, b), (fa, fb) in zip(pairwise(knots), pairwise(loss), strict=True):
        if fa <= 0 and fb <= 0:
            continue  # what lies between two knots is left out: the sum stays a lower bound
        ends = [a, b]
        if (fa > 0) != (fb > 0):
            root = _root(over, a, b)
            inner = [
                root + ((b if fb > 0 else a) - root) * mp.mpf(8) ** -k for k in range(6, -1, -1)
            ]  # finer toward it
            ends = sorted([root, *inner])
        for left, right in pairwise(ends):
            half = (right - left) / 2
            for node, weight in zip(*NODES, strict=True):
                y = left + half * (1 + node)
                log_z = law.log_prob(y)
                total += half * weight * mp.exp(log_z) * -mp.expm1(min(eps - log_z + law.log_prob(y + tau), mp.mpf(0)))
    return total


def _root(over: Callable[[mp.mpf], mp.mpf], a: mp.mpf, b: mp.mpf) -> mp.mpf:
    """Where the loss crosses eps between a and b, from the side on which it is above."""
    rising = over(b) > 0
    for _ in range(60):
        middle = (a + b) / 2
        a, b = (a, middle) if (over(middle) > 0) == rising else (middle, b)
    return b if rising else a
