"""Trade-off curves against closed forms, from below."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette import Mechanism, Noise
from noisette.accounting import guarantee, tradeoff
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Cauchy, Gaussian, Laplace, StudentT
from tests.support.accounting_references import gaussian_delta, simulate
from tests.support.helpers import refused

RATES = np.linspace(0, 1, 201)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_gaussian(sigma: float) -> None:
    """G_mu(a) = Phi(Phi^-1(1 - a) - mu), with mu = 1/sigma."""
    found = tradeoff(Mechanism(L2(dim=9), Gaussian(sigma), 1.0, 1))
    truth = stats.norm.cdf(stats.norm.isf(RATES) - 1 / sigma)
    curve = found.false_negative(RATES)
    assert np.all(curve <= truth + 1e-12)
    np.testing.assert_allclose(curve, truth, atol=1e-3)
    assert found.advantage == pytest.approx(2 * stats.norm.cdf(0.5 / sigma) - 1, rel=1e-4)
    assert found.advantage >= 2 * stats.norm.cdf(0.5 / sigma) - 1 - 1e-12
    truth = [gaussian_delta(eps, 1 / sigma) for eps in found.epsilons[:200]]
    assert np.all(found.deltas[:200] >= np.array(truth) - 1e-12)
    np.testing.assert_allclose(found.deltas[:200], truth, rtol=5e-3, atol=1e-6)


def test_laplace() -> None:
    """One coordinate and shift 1: the trade-off is 1 - e a, 1/(4 e a), (1 - a)/e, piece by piece."""
    curve = tradeoff(Mechanism(Ranked(dim=1), Laplace(1.0), 1.0, 1)).false_negative(RATES[1:])
    a = RATES[1:]
    truth = np.where(a < np.exp(-1) / 2, 1 - np.e * a, np.where(a < 0.5, np.exp(-1) / (4 * a), (1 - a) / np.e))
    assert np.all(curve <= truth + 1e-12)
    np.testing.assert_allclose(curve, truth, atol=1e-3)


@pytest.mark.parametrize("noise", [StudentT(3, 0.7), Cauchy(0.5), Laplace(0.7), Gaussian(0.8)], ids=repr)
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.1, 20)])
def test_shape(noise: Noise, rate: float, steps: int) -> None:
    """Falling, convex, below chance, and consistent with epsilon and with the advantage."""
    mechanism = Mechanism(Ranked(dim=10), noise, rate, steps)
    found = tradeoff(mechanism)
    curve = found.false_negative(RATES)
    assert np.all(np.diff(curve) <= 0)
    assert np.all(np.diff(curve, n=2) >= -1e-9)
    assert np.all(curve <= 1 - RATES + 1e-12)
    assert curve[0] <= 1
    assert curve[-1] == 0
    assert 1 - np.min(curve + RATES) == pytest.approx(found.advantage, abs=2e-3)
    assert np.all(np.diff(found.epsilons) > 0)
    assert np.all(np.diff(found.deltas) <= 0)
    delta = float(found.deltas[200])
    assert guarantee(mechanism, delta).epsilon == pytest.approx(found.epsilons[200], rel=2e-3)


def test_no_attack_beats_it() -> None:
    """The likelihood-ratio test on simulated releases, the best there is; thresholds from the other half; 5 sigma."""
    encoder, noise, rate, steps = Ranked(dim=20), StudentT(3, 0.4), 0.3, 3
    block = encoder.blocks[0]
    losses = simulate(noise, np.repeat(block.levels[0], block.counts), rate, steps, 200_000, seed=6)
    found = tradeoff(Mechanism(encoder, noise, rate, steps))
    present, absent = losses.removal, -losses.addition  # log P/Q under P, and under Q
    for level in (0.01, 0.1, 0.3, 0.6):
        reached = []
        for null, other in ((absent, present), (-present, -absent)):  # either hypothesis may be the null
            threshold = np.quantile(null[::2], 1 - level)
            positives, negatives = null[1::2] > threshold, other <= threshold
            error = 5 * (negatives.std() / np.sqrt(negatives.size) + 5 * positives.std() / np.sqrt(positives.size))
            claimed = float(found.false_negative(positives.mean()))
            assert claimed <= negatives.mean() + error
            reached.append(negatives.mean() - claimed)
        assert min(reached) <= 0.03, "and the bound is near what the better attack reaches"


def test_composition_and_runs() -> None:
    one = Mechanism(L2(dim=9), Gaussian(1.0), 1.0, 1)
    four = tradeoff((one, one.replace(steps=3))).false_negative(RATES)
    np.testing.assert_allclose(four, stats.norm.cdf(stats.norm.isf(RATES) - 2.0), atol=1e-3)


def test_limits() -> None:
    nothing = tradeoff(Mechanism(L2(dim=9), Gaussian(1.0), 0.5, 0))
    assert nothing.advantage == 0
    np.testing.assert_allclose(nothing.false_negative(RATES), 1 - RATES, atol=2e-3)
    everything = tradeoff(Mechanism(L2(dim=9), Gaussian(1e-3), 1.0, 1))
    assert everything.advantage == pytest.approx(1.0)
    assert np.all(everything.false_negative(RATES) <= 1e-9)
    assert np.all(np.isfinite(everything.epsilons))


def test_shapes_and_refusals() -> None:
    found = tradeoff(Mechanism(L2(dim=9), Gaussian(1.0), 1.0, 1), points=50)
    assert found.epsilons.shape == found.deltas.shape == (50,)
    assert found.false_negative(0.3).shape == ()
    assert found.false_negative(np.full((2, 3), 0.3)).shape == (2, 3)
    for bad in (-0.1, 1.1, np.nan, [0.5, 2.0]):
        with refused(InvalidInput, "false-positive"):
            found.false_negative(bad)
