"""What floats cost: never less than a sampler as bad as it may be would do, and little for real runs."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from noisette import Mechanism, Noise, calibrate, guarantee
from noisette._quantization import Grid
from noisette.accounting._float_error import Roundings, addition, roundings
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import GeometricNumTrials, LogarithmicNumTrials, NumTrials, PoissonNumTrials
from noisette.encoders import L2, Ranked
from noisette.mechanism import COVERED, REAL
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, Logistic, ScipyNoise, Sech, StudentT
from tests.support.mpmath_noise import reference

MNIST = 256 / 60000, 14062, 26010
LAWS = [
    Gaussian(1.0),
    StudentT(9, 1.0),
    StudentT(1, 1.0),
    Laplace(1.0),
    Cauchy(1.0),
    Sech(1.0),
    Logistic(1.0),
    GeneralizedGaussian(0.7, 1.0),
    GeneralizedGaussian(50, 1.0),
]


@pytest.mark.parametrize("noise", LAWS, ids=repr)
@pytest.mark.parametrize(("scale", "count"), [(1.0, 5), pytest.param(0.7, 100, marks=pytest.mark.slow)])
def test_no_sampler_that_is_as_bad_as_it_may_be_is_worse(noise: Noise, scale: float, count: int) -> None:
    """Draws all moved toward a cell by as much as they may, and the steps of the uniforms on its side, in mpmath."""
    noise = noise.replace(scale=scale)
    grid, accuracy, law = Grid.of(1.0, scale), noise.sampling_error, reference(noise)
    known = roundings(noise, grid)
    assert known is not None
    assert accuracy is not None
    rng, width = np.random.default_rng(1), grid.release_quantum / scale
    behind = np.concatenate([[1.0, 0.999], 2.0 ** -rng.uniform(0, 70, count)])
    for start, chance in zip(noise.replace(scale=1.0)._abs_quantile(behind).tolist(), behind.tolist(), strict=True):
        if start + width > grid.clamp / scale:
            continue
        a, b = mp.mpf(start), mp.mpf(start + width)
        moved = (accuracy.position + mp.mpf(1) / 2) * mp.mpf(2) ** -52 * max(1, b)
        cell = law.sf(a) - law.sf(b)
        wider = law.survival(a - moved) - law.sf(b + moved) + mp.mpf(2) ** -51 * (law.sf(a) + law.sf(b))
        piece = min(int(np.searchsorted(-known.chances, -chance)), len(known.eta) - 1)
        assert float((wider / cell) ** accuracy.together - 1) <= known.eta[piece]


def test_draws_made_together_are_wrong_together() -> None:
    """Two Gaussian draws of one radius: half as many as there are draws, each as wrong as two of them."""
    pair = roundings.__wrapped__(Gaussian(1.0), Grid.of(1.0, 1.0))  # not what is kept
    assert pair is not None
    missed, mass = 129 * 2.0**-52, 1 / 64 / 2  # by how much an end is, and of a cell what is sure to be there
    assert pair.eta[0] > 2 * 2 * missed / mass
    two, one = pair.upto(2.0**-60), Roundings(pair.eta, pair.chances, together=1).upto(2.0**-60)
    assert two is not None
    assert one is not None
    assert (two.square, two.largest) == (one.square / 2, one.largest)


RUNS = (
    Mechanism(L2(dim=MNIST[2]), Gaussian(1.1), *MNIST[:2]),
    Mechanism(Ranked(dim=MNIST[2]), StudentT(9, 1.0), *MNIST[:2]),
    Mechanism(L2(dim=10**7), Gaussian(), 0.01, 10_000),
)


@pytest.mark.parametrize(
    ("mechanism", "most"),
    list(zip(RUNS, (1e-5, 1e-5, 1e-3), strict=True)),
    ids=["MNIST, Gaussian", "MNIST, Student-t", "ten million"],
)
def test_real_runs_pay_little(mechanism: Mechanism, most: float) -> None:
    """The first two may pay 1e-3 and the last 5e-3 of epsilon; it is far less."""
    if mechanism.noise.scale is None:
        mechanism = calibrate(mechanism, 1.0, 1e-5)
    for name in ("pld", "rdp"):
        found = guarantee(mechanism, 1e-5, name)
        assert found.arithmetic == COVERED
        assert 0 < found.arithmetic_epsilon < most * found.epsilon
        assert found.to_dict()["arithmetic"] == COVERED


def test_what_is_not_covered_says_so() -> None:
    one = Mechanism(Ranked(dim=10), Laplace(1.0), 0.1, 5)
    assert guarantee(one, 1e-5).arithmetic == COVERED
    assert guarantee(one.replace(steps=0), 1e-5).arithmetic == COVERED
    open_: list[Mechanism | tuple[Mechanism, ...]] = [
        one.replace(noise=ScipyNoise("laplace", scale=1.0)),
        one.replace(noise=StudentT(0.5, 1.0)),
        (one, one.replace(noise=ScipyNoise("logistic", scale=1.0))),
        one.replace(noise=Laplace(0.02)),  # of this epsilon, nothing is so unlikely that it could be left out
    ]
    for spent in open_:
        found = guarantee(spent, 1e-5)
        assert (found.arithmetic, found.arithmetic_epsilon) == (REAL, 0.0)
    other = one.replace(noise=ScipyNoise("laplace", scale=1.0))
    assert addition((BestOf((one, other), GeometricNumTrials(3)),), 1e-5, 1.0) is None
    # the number of runs is drawn with an error above all that is left
    assert addition((BestOf((one,), PoissonNumTrials(5000)),), 1e-5, 1.0) is None


def test_the_cost_grows_with_all_that_is_drawn() -> None:
    def shift(dim: int, steps: int, delta: float) -> float:
        found = addition((Mechanism(Ranked(dim=dim), StudentT(9, 1.0), 0.1, steps),), delta, 1.0)
        assert found is not None
        return found.shift

    usual = shift(1000, 1000, 1e-5)
    assert shift(4000, 1000, 1e-5) > usual
    assert shift(1000, 4000, 1e-5) == pytest.approx(shift(4000, 1000, 1e-5), rel=1e-2)
    assert shift(1000, 1000, 1e-9) > usual


@pytest.mark.parametrize("trials", [GeometricNumTrials(10), LogarithmicNumTrials(10), PoissonNumTrials(10)])
def test_a_search_draws_for_all_of_its_runs(trials: NumTrials) -> None:
    """As one that makes so many runs as it hardly ever makes, one after the other; and it pays little for that."""
    one, score = Mechanism(L2(dim=26010), Gaussian(4.56), 0.07, 100), Mechanism(Ranked(dim=1), Laplace(2.0), 1.0, 1)
    search = BestOf((one,), trials, score)
    most = trials.quantile_bound(1e-10)
    assert most > 3 * trials.mean
    found, after = addition((search,), 1e-5, 1.0), addition((one.replace(steps=100 * most),), 1e-5, 1.0)
    assert found is not None
    assert after is not None
    assert found.shift > 0.9 * after.shift
    assert found.chance > trials.error
    promise = guarantee(search, 1e-5)
    assert promise.arithmetic == COVERED
    assert 0 < promise.arithmetic_epsilon < 2e-4 * promise.epsilon


@pytest.mark.parametrize(
    ("radius", "scale"),
    [
        *((1e-6, 1e-6), (1e-6, 1.0), (1.0, 1.0), (1.0, 1e6), (1e6, 1e6)),
        pytest.param(1e-6, 1e6, marks=pytest.mark.slow),  # a lattice of millions of points
    ],
)
def test_extreme_scales_and_radii(radius: float, scale: float) -> None:
    found = guarantee(Mechanism(L2(dim=100, radius=radius), Gaussian(scale), 0.01, 10), 1e-5)
    assert found.arithmetic == COVERED
    assert math.isfinite(found.epsilon)
