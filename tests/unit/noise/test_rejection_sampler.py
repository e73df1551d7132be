"""Draws under a staircase follow the density, and would not without its closer looks. Levels are 1e-6, seeds fixed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette import Generator, Noise
from noisette.noise import GeneralizedGaussian, ScipyNoise, VarianceGamma
from noisette.noise import _rejection_sampler as module
from noisette.noise._rejection_sampler import Strips, strips
from tests.conformance.statistics import ks_rejects, sampling_faults

LAWS: tuple[Noise, ...] = (
    GeneralizedGaussian(1.5, 1.0),
    GeneralizedGaussian(0.3, 1.0),
    VarianceGamma(0.6, 1.0),
    ScipyNoise("t", 0.5, scale=1.0),
    ScipyNoise("norm", scale=1.0),
)
N = 200_000


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_strips_cover_the_density_closely(law: Noise) -> None:
    made = Strips(law)
    x = (made._starts[:, None] + made._widths[:, None] * np.linspace(0, 1, 7)).ravel()
    heights = np.repeat(made._heights, 7)
    density = 2 * np.exp(law.log_prob(x))
    assert np.all(density <= heights * (1 + 1e-12))
    assert np.all(np.repeat(made._sure * made._heights, 7) <= density * (1 + 1e-12))
    area = float(made._heights @ made._widths) + made._tail
    assert 1 <= area < 1.06, "few points fall beside"
    np.testing.assert_allclose(made._starts[1:], (made._starts + made._widths)[:-1], rtol=1e-12)


@pytest.mark.parametrize("law", [law for law in LAWS if not isinstance(law, VarianceGamma)], ids=repr)
def test_draws_beyond_the_last_strip(law: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips that leave a tenth of the law to its inverse give the same law; that of variance-gamma takes minutes."""
    monkeypatch.setattr(module, "_TAIL", np.geomspace(0.5, 0.1, 9))
    made = Strips(law)
    assert made._tail == pytest.approx(0.1, rel=1e-6)
    assert sampling_faults(law, made.draw(N, Generator(21))) == []


def test_against_scipys_own_draws() -> None:
    """A two-sample test, with draws that nobody here made."""
    own = strips(VarianceGamma(2, 1.0)).draw(N, Generator(22))
    rng = np.random.default_rng(3)
    theirs = rng.standard_normal(N) * np.sqrt(2 * stats.gamma(2).rvs(N, random_state=rng))
    assert stats.ks_2samp(own, theirs).pvalue > 1e-6


@pytest.mark.parametrize("law", LAWS[:3], ids=repr)
def test_without_a_closer_look_the_law_is_another(law: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 2)
    made = Strips(law)
    assert not ks_rejects(law, made.draw(N, Generator(23)))
    made._sure = np.ones_like(made._sure)
    assert ks_rejects(law, made.draw(N, Generator(23)))


def test_a_tail_that_leaves_the_range_of_a_float() -> None:
    law = ScipyNoise("t", 0.05, scale=1.0)
    draws = strips(law).draw(N, Generator(24))
    assert np.all(np.isfinite(draws))
    assert not ks_rejects(law, draws)


def test_made_once_for_all_scales_of_a_run() -> None:
    law = VarianceGamma(2, 1.0)
    assert strips(law) is strips(VarianceGamma(2, 1.0))
    assert len(strips(law).draw(0, Generator(1))) == 0
