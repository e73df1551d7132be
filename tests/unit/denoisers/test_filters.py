"""`Kalman` and `LowPass`: against scipy's filters, in variance and in lag."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from noisette import Generator
from noisette.denoisers import Denoiser, Kalman, LowPass
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from tests.support.helpers import refused
from tests.support.released_streams import assert_mean, vector

NOISE = Gaussian(1.5)


def filtered(denoiser: Denoiser, rows: np.ndarray) -> np.ndarray:
    """What the denoiser makes of released vectors `rows` (steps, dim)."""
    state = denoiser.init(NOISE, rows.shape[1])
    results = []
    for row in rows:
        released, state = denoiser.update(vector(row, NOISE), state)
        results.append(released.values.numpy().copy())
    assert int(state["step"]) == len(rows)
    return np.stack(results)


@pytest.mark.parametrize("gain", [0.1, 0.7, 1.0])
def test_kalman_is_scipys_filter_started_at_the_first_value(gain: float) -> None:
    rows = np.random.default_rng(1).standard_normal((40, 7))
    expected, _ = signal.lfilter([gain], [1, gain - 1], rows, axis=0, zi=(1 - gain) * rows[:1])
    np.testing.assert_allclose(filtered(Kalman(gain), rows), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.99])
def test_low_pass_is_scipys_filter_over_its_weights(beta: float) -> None:
    rows = np.random.default_rng(2).standard_normal((40, 7))
    expected = signal.lfilter([1 - beta], [1, -beta], rows, axis=0)
    weights = signal.lfilter([1 - beta], [1, -beta], np.ones(40))
    np.testing.assert_allclose(filtered(LowPass(beta), rows), expected / weights[:, None], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("denoiser", [Kalman(0.3), Kalman(1.0), LowPass(0.9), LowPass(0.0)], ids=repr)
def test_a_constant_goes_through(denoiser: Denoiser) -> None:
    """From the first step on: neither starts from 0."""
    rows = np.tile([1.0, -3.0, 1e-9], (30, 1))
    np.testing.assert_allclose(filtered(denoiser, rows), rows, rtol=1e-13)
    np.testing.assert_allclose(filtered(denoiser, rows)[0], rows[0], rtol=1e-15)


@pytest.mark.parametrize(
    ("denoiser", "share"),
    [(Kalman(0.7), 0.7 / 1.3), (Kalman(0.2), 0.2 / 1.8), (LowPass(0.9), 0.1 / 1.9), (LowPass(0.5), 0.5 / 1.5)],
    ids=repr,
)
def test_variance(denoiser: Denoiser, share: float) -> None:
    """After many steps the variance of the noise is `share` of what was released."""
    rows = NOISE.sample((80, 20_000), Generator(3)).numpy() + 5.0
    last = filtered(denoiser, rows)[-1] - 5.0
    assert_mean(last**2, share * NOISE.std**2)


@pytest.mark.parametrize("gain", [0.3, 0.7])
def test_lookahead_takes_the_lag_away(gain: float) -> None:
    """On a quadratic, without noise: the estimate is the gradient itself with lookahead, and late without."""
    kalman, curvature = Kalman(gain), np.array([0.5, 1.0, 3.0])
    assert kalman.lookahead == pytest.approx((1 - gain) / gain)

    def worst(lookahead: float) -> float:
        theta = previous = np.array([1.0, -2.0, 0.5])
        state, off = kalman.init(NOISE, 3), 0.0
        for _ in range(30):
            ahead = theta + lookahead * (theta - previous)
            released, state = kalman.update(vector(curvature * ahead, NOISE), state)
            off = max(off, float(np.abs(released.values.numpy() - curvature * theta).max()))
            previous, theta = theta, theta - 0.1 * released.values.numpy()
        return off

    assert worst(kalman.lookahead) < 1e-13
    assert worst(0.0) > 0.05


def test_any_law_will_do() -> None:
    for denoiser in (Kalman(), LowPass()):
        assert set(denoiser.init(StudentT(0.5, 1.0), 3)) - {"step"} in ({"estimate"}, {"average"})
    assert LowPass().lookahead == 0.0


def test_parameters() -> None:
    for bad in (0, -0.1, 1.0001, math.nan, math.inf, "0.7", None, True):
        with refused(InvalidInput, "gain"):
            Kalman(gain=bad)
    for bad in (-0.1, 1, 1.0001, math.nan, math.inf, "0.7", None, True):
        with refused(InvalidInput, "beta"):
            LowPass(beta=bad)
    assert repr(Kalman(1)) == "Kalman(gain=1.0)"
    assert repr(LowPass(0)) == "LowPass(beta=0.0)"
