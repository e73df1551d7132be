"""The score denoiser reaches the Cramer-Rao bound for small shifts, and saturates beyond."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from noisette import Generator, Noise
from noisette.denoisers import Score
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, GeneralizedGaussian, Laplace, StudentT, VarianceGamma
from tests.support.helpers import refused
from tests.support.released_streams import assert_mean, vector


def denoised(values: torch.Tensor, noise: Noise) -> np.ndarray:
    return Score().update(vector(values, noise), Score().init(noise, values.numel()))[0].values.numpy()


def test_gaussian_is_the_identity() -> None:
    values = Gaussian(1.1).sample((100,), Generator(1))
    np.testing.assert_allclose(denoised(values, Gaussian(1.1)), values, rtol=1e-14)


@pytest.mark.parametrize(
    ("noise", "bound", "raw"),
    [(StudentT(3, 0.5), 0.25 * 6 / 4, 0.25 * 3), (Laplace(2.0), 4.0, 8.0), (StudentT(9, 1.0), 12 / 10, 9 / 7)],
    ids=repr,
)
def test_small_shifts_reach_the_cramer_rao_bound(noise: Noise, bound: float, raw: float) -> None:
    """Mean square error 1/I where the noise's own is its variance; the shift is a twentieth of the scale."""
    shift = 0.05 * noise.known_scale
    errors = denoised(noise.sample((400_000,), Generator(2)) + shift, noise) - shift
    assert_mean(errors**2, bound, slack=0.006 * bound)  # the bias at this shift
    assert_mean(errors, 0.0, slack=0.002 * noise.known_scale)
    assert noise.std**2 == pytest.approx(raw)


def test_saturation() -> None:
    """The numbers of the docstring, by quadrature over scipy's density."""
    noise = StudentT(9, 1.0)
    for shift, mean in ((2.0, 1.57), (4.0, 1.86)):
        y = np.linspace(-200, 200, 400_001)
        found = integrate.trapezoid(noise.score(y) / noise.fisher_information * stats.t(9).pdf(y - shift), y)
        assert found == pytest.approx(mean, abs=0.006)


@pytest.mark.parametrize("noise", [GeneralizedGaussian(0.5, 1.0), VarianceGamma(0.75, 1.0)], ids=repr)
def test_infinite_information_is_refused(noise: Noise) -> None:
    with refused(InvalidInput, "Fisher information"):
        Score().init(noise, 10)
    with refused(InvalidInput, "Fisher information"):
        Score().update(vector(np.ones(10), noise), {})
