"""Independent witnesses: dp_accounting, mpmath integrals, closed forms, simulations; none uses our accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import optimize, stats

from noisette import Noise
from noisette.accounting._step_divergence import step_curve
from noisette.accounting.pld import privacy_loss
from noisette.accounting.rdp import _products
from noisette.encoders import _rank_based
from noisette.encoders.profiles import build
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, StudentT
from tests.support.mpmath_noise import reference

RATE = 256 / 60000
DELTA = 1e-5
PAPER_SIGMAS = (0.7, 0.85, 0.9, 1.0, 1.1, 1.25, 1.5)
PAPER_EPSILONS = (8.217978366, 4.927545556, 4.342608188, 3.545860538, 3.009155349, 2.474043639, 1.920888246)
GAUSSIAN_PLD = {0.8: 4.550, 0.9: 3.478, 1.0: 2.823, 1.1: 2.3816, 1.2: 2.064, 1.3: 1.824, 1.4: 1.635}
"""dp_accounting's own PLD at interval 2e-5 and T = 14,062, to three or four decimals."""


def forget() -> None:
    """Empty every memory of results, so that a changed function is really called."""
    for cached in (privacy_loss, step_curve, _products, build, _rank_based._scaled):
        cached.cache_clear()


def gaussian_of_dp_accounting(sigma: float, rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    one = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, value_discretization_interval=interval, sampling_prob=rate
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def laplace_of_dp_accounting(scale: float, rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    one = privacy_loss_distribution.from_laplace_mechanism(
        scale, value_discretization_interval=interval, sampling_prob=rate
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def gaussian_delta(eps: float, mu: float) -> float:
    """H_{e^eps}(N(mu, 1) || N(0, 1)), the closed form."""
    return float(stats.norm.sf(eps / mu - mu / 2) - math.exp(eps + stats.norm.logsf(eps / mu + mu / 2)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    return float(optimize.brentq(lambda eps: gaussian_delta(eps, mu) - delta, 0, 20 * mu + mu * mu, xtol=1e-12))


def exact_log_moment(noise: Noise, order: int, tau: float) -> mp.mpf:
    """Log of the integral of z(x - tau)^k z(x)^(1-k), to 40 digits and more."""
    with mp.workdps(50):
        law, k, shift = reference(noise), mp.mpf(order), mp.mpf(tau) / mp.mpf(noise.known_scale)

        def integrand(x: mp.mpf) -> mp.mpf:
            return mp.exp(k * law.log_prob(x - shift) + (1 - k) * law.log_prob(x))

        steps = [mp.mpf(10) ** j for j in range(4)]
        ends = {mp.mpf(0), shift / 2, shift, -mp.inf, mp.inf, *(-s for s in steps), *(shift + s for s in steps)}
        if isinstance(noise, Gaussian | GeneralizedGaussian):  # whose integrand moves out with the order
            ends |= {k * shift + c for c in (-5, 0, 5)}
        return mp.log(mp.quad(integrand, sorted(ends)))


@dataclass(frozen=True)
class SimulatedLosses:
    """Privacy losses of a composed sampled mechanism, drawn under P (removal) and under Q (addition)."""

    removal: np.ndarray
    addition: np.ndarray

    def delta(self, losses: np.ndarray, eps: float) -> tuple[float, float]:
        """Mean of (1 - e^(eps - loss))+ and its standard error."""
        gains = np.clip(-np.expm1(np.minimum(eps - losses, 0.0)), 0.0, 1.0)
        return float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))


_LAWS: dict[type[Noise], tuple[Callable, Callable]] = {
    Laplace: (lambda rng, noise, n: rng.laplace(size=n), lambda noise, x: -np.abs(x)),
    Cauchy: (lambda rng, noise, n: rng.standard_cauchy(size=n), lambda noise, x: -np.log1p(x * x)),
    StudentT: (
        lambda rng, noise, n: rng.standard_t(noise.df, size=n),
        lambda noise, x: -(noise.df + 1) / 2 * np.log1p(x * x / noise.df),
    ),
}


def simulate(noise: Noise, psi: Sequence[float], rate: float, steps: int, draws: int, seed: int) -> SimulatedLosses:
    """The exact likelihood ratio of `steps` sampled releases whose shift is `psi`, with numpy's own samplers."""
    rng = np.random.default_rng(seed)
    sample, log_density = _LAWS[type(noise)]
    shift = np.asarray(psi) / noise.known_scale
    removal, addition = np.zeros(draws), np.zeros(draws)
    for _ in range(steps):
        z = sample(rng, noise, (draws, len(shift)))
        base = log_density(noise, z)
        absent = (log_density(noise, z - shift) - base).sum(axis=1)  # log P/Q at y = z
        present = (base - log_density(noise, z + shift)).sum(axis=1)  # and at y = z + psi
        seen = np.where(rng.random(draws) < rate, present, absent)
        removal += np.logaddexp(math.log1p(-rate), math.log(rate) + seen)
        addition -= np.logaddexp(math.log1p(-rate), math.log(rate) + absent)
    return SimulatedLosses(removal, addition)
