"""Parameters that no law has are refused, with a hint."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from noisette import Noise
from noisette._spec import registered
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, GeneralizedGaussian, StudentT, VarianceGamma
from tests.support.helpers import refused


@pytest.mark.parametrize("bad", [0, -1, -0.0, math.nan, math.inf, -math.inf, "9", None, True, 1j, 10**400])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: StudentT(df=v, scale=1.0),
        lambda v: GeneralizedGaussian(shape=v, scale=1.0),
        lambda v: VarianceGamma(shape=v, scale=1.0),
    ],
    ids=["df", "shape", "lambda"],
)
def test_shapes(make: Callable[[object], Noise], bad: object) -> None:
    with refused(InvalidInput):
        make(bad)


@pytest.mark.parametrize("bad", [0.5, 0.3, 50.1])
def test_variance_gamma_outside_its_range(bad: float) -> None:
    """At 1/2 and below the density is infinite at 0, and no epsilon exists."""
    with refused(InvalidInput, "shape"):
        VarianceGamma(shape=bad)


def test_numbers_become_floats() -> None:
    """So that 9 and 9.0 are one mechanism with one hash."""
    assert repr(StudentT(9, 1)) == repr(StudentT(9.0, 1.0)) == "StudentT(df=9.0, scale=1.0)"


def test_certified_laws() -> None:
    """A guarantee is a bound for these; ScipyNoise decides by name. A ball is for the Gaussian only."""
    laws = registered(Noise)
    ours = {"Cauchy", "Gaussian", "GeneralizedGaussian", "Laplace", "Logistic", "Sech", "StudentT", "VarianceGamma"}
    assert all(laws[name].certified for name in ours)
    assert {name for name, law in laws.items() if law.rotation_invariant} == {"Gaussian"}
    assert Gaussian().scale is None
