"""Released vectors made by hand, and the level of the statistical tests here."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from noisette import Noise, Released

LEVEL = 1e-6
"""False alarms among a million correct implementations, for every statistical test; the seeds are fixed."""
SIGMAS = float(stats.norm.isf(LEVEL / 2))


def vector(values: torch.Tensor | npt.NDArray[np.float64] | list[float], noise: Noise) -> Released:
    """`values` as if they had been released."""
    return Released(torch.as_tensor(values, dtype=torch.float64).clone(), noise, reproducible=True)


def assert_mean(draws: npt.ArrayLike, expected: float, slack: float = 0.0) -> None:
    """The mean of independent `draws` is `expected` up to `slack`, at LEVEL."""
    draws = np.asarray(draws)
    allowed = SIGMAS * draws.std(ddof=1) / math.sqrt(len(draws)) + slack
    assert abs(draws.mean() - expected) <= allowed, (draws.mean(), expected, allowed)
