"""Moments of noise laws, remembered: some take a quadrature, and a denoiser asks at every step."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from noisette.noise import Noise

__all__ = ["moment"]


@lru_cache(maxsize=192)
def moment(noise: Noise, which: Literal["fisher_information", "std", "mean_abs"]) -> float:
    """The Fisher information of the location, the standard deviation or the mean absolute value of one coordinate.

    >>> from noisette.noise import Laplace
    >>> moment(Laplace(scale=2.0), "fisher_information"), moment(Laplace(scale=2.0), "mean_abs")
    (0.25, 2.0)
    """
    value: float = getattr(noise, which)
    return value
