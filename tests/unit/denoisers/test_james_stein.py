"""James-Stein shrinkage has no more error than the released vector, whatever the signal."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisette import Generator, Noise
from noisette.denoisers import JamesStein
from noisette.errors import InvalidInput
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT
from tests.support.helpers import refused
from tests.support.released_streams import SIGMAS, vector


def losses(noise: Noise, signal: np.ndarray, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of the denoised and of the released vectors, (trials,) each."""
    draws = noise.sample((trials, len(signal)), Generator(1)).numpy()
    shrunk = np.stack([JamesStein().update(vector(signal + row, noise), {})[0].values.numpy() for row in draws])
    return ((shrunk - signal) ** 2).sum(axis=1), (draws**2).sum(axis=1)


@pytest.mark.parametrize("length", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("dim", [3, 10, 300])
def test_gaussian(dim: int, length: float) -> None:
    """At LEVEL: better than identity, and within James and Stein's bound d - (d-2)^2 / (d - 2 + |signal|^2)."""
    signal = np.linspace(-1, 1.5, dim)
    signal *= length / np.linalg.norm(signal)
    scale = 0.7
    # with three coordinates the gain is a tenth of its deviation: 6,000 trials put it eight standard errors above zero
    shrunk, plain = losses(Gaussian(scale), scale * signal, 6_000 if dim == 3 else 2_000)
    gain = plain - shrunk
    assert gain.mean() > SIGMAS * gain.std() / math.sqrt(len(gain))
    bound = scale**2 * (dim - (dim - 2) ** 2 / (dim - 2 + length**2))
    assert shrunk.mean() <= bound + SIGMAS * shrunk.std() / math.sqrt(len(shrunk))


@pytest.mark.parametrize("noise", [Laplace(1.0), StudentT(9, 1.0)], ids=repr)
@pytest.mark.parametrize("length", [0.0, 10.0])
def test_other_laws_with_many_coordinates(noise: Noise, length: float) -> None:
    signal = np.zeros(500)
    signal[:20] = length / math.sqrt(20)
    shrunk, plain = losses(noise, signal, 200)
    gain = plain - shrunk
    assert gain.mean() > SIGMAS * gain.std() / math.sqrt(len(gain))


def test_by_hand() -> None:
    noise = Gaussian(2.0)
    values = np.array([3.0, -4.0, 12.0])  # squared length 169
    found = JamesStein().update(vector(values, noise), {})[0].values.numpy()
    np.testing.assert_allclose(found, (1 - 4 / 169) * values, rtol=1e-14)
    for small in (np.zeros(3), np.array([1.0, -1.0, 1.0])):
        assert JamesStein().update(vector(small, noise), {})[0].values.tolist() == [0.0, 0.0, 0.0]
    huge = np.array([1e200, 1e200, -1e200])  # whose squared length is no float
    assert JamesStein().update(vector(huge, noise), {})[0].values.tolist() == huge.tolist()


def test_refusals() -> None:
    for noise in (Cauchy(1.0), StudentT(2.0, 1.0)):
        with refused(InvalidInput, "variance"):
            JamesStein().init(noise, 10)
        with refused(InvalidInput, "variance"):
            JamesStein().update(vector(np.ones(10), noise), {})
    for dim in (1, 2):
        with refused(InvalidInput, "3 coordinates"):
            JamesStein().init(Gaussian(1.0), dim)
