"""The two shared regions: at their ends the likelihood ratio is e^eps, inside it is more, outside less."""

from __future__ import annotations

import numpy as np
import pytest

from noisette import Noise
from noisette.noise import Cauchy, Logistic, Sech, StudentT

EPS = np.array([0.0, 1e-12, 0.01, 0.3, 1.0, 2.5])


@pytest.mark.parametrize(
    "noise", [Cauchy(1.0), StudentT(9, 1.0), StudentT(1.5, 1.0), Sech(1.0), Logistic(1.0)], ids=repr
)
@pytest.mark.parametrize("tau", [1e-6, 0.2, 1.0, 5.0, 40.0])
def test_region_is_where_the_loss_exceeds_eps(noise: Noise, tau: float) -> None:
    lo, hi = (end + tau for end in noise._loss_interval(EPS, tau))
    grid = np.concatenate([np.linspace(-2 * tau, 4 * tau, 4001), tau + np.geomspace(1e-3, 300, 500)])
    loss = noise.log_prob(grid - tau) - noise.log_prob(grid)
    for eps, a, b in zip(EPS, lo, hi, strict=True):
        inside = (grid > a) & (grid < b)
        margin = 1e-9 * (1 + eps)
        assert np.all(loss[inside] > eps - margin)
        assert np.all(loss[~inside] < eps + margin)
        if np.isfinite(a):
            assert noise.log_prob(a - tau) - noise.log_prob(a) == pytest.approx(eps, abs=1e-9)
        if np.isfinite(b):
            assert noise.log_prob(b - tau) - noise.log_prob(b) == pytest.approx(eps, abs=1e-9)
