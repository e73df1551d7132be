"""Moments of noise laws, remembered: some take a quadrature, and a denoiser asks at every step."""

from __future__ import annotations

from functools import lru_cache

from noisette.noise import Noise

__all__ = ["information", "mean_abs", "variance"]


@lru_cache(maxsize=64)
def information(noise: Noise) -> float:
    """Fisher information of the location.

    >>> from noisette import Laplace
    >>> information(Laplace(scale=2.0))
    0.25
    """
    return noise.fisher_information


@lru_cache(maxsize=64)
def variance(noise: Noise) -> float:
    """Variance of one coordinate.

    >>> from noisette import Laplace
    >>> round(variance(Laplace(scale=2.0)), 12)
    8.0
    """
    return noise.std**2


@lru_cache(maxsize=64)
def mean_abs(noise: Noise) -> float:
    """Mean absolute value of one coordinate.

    >>> from noisette import Laplace
    >>> mean_abs(Laplace(scale=2.0))
    2.0
    """
    return noise.mean_abs
