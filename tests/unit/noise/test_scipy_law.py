"""Any symmetric, unimodal law of scipy.stats; the others are refused with the reason."""

from __future__ import annotations

import pytest

from noisette import Noise, parse
from noisette.errors import InvalidInput
from noisette.noise import ScipyNoise
from tests.support.helpers import refused


@pytest.mark.parametrize(
    ("name", "shapes", "reason"),
    [
        ("skewnorm", (3.0,), "not symmetric"),
        ("gumbel_r", (), "not symmetric"),
        ("dweibull", (2.0,), "not unimodal"),
        ("dgamma", (2.5,), "not unimodal"),
        ("dgamma", (0.9,), "infinite at 0"),
        ("uniform", (), "support"),
        ("semicircular", (), "support"),
        ("cosine", (), "support"),
        ("truncnorm", (-2.0, 2.0), "support"),
        ("expon", (), "support"),
        ("lognorm", (1.0,), "support"),
        ("t", (-1.0,), "not valid"),
    ],
)
def test_refused_with_the_reason(name: str, shapes: tuple[float, ...], reason: str) -> None:
    """P11: asymmetric, bimodal and compactly supported laws have no known worst case."""
    with refused(InvalidInput, reason):
        ScipyNoise(name, *shapes, scale=1.0)


@pytest.mark.parametrize("name", ["poisson", "no_such_law", "rv_continuous", "__class__", "kstest", 5, None])
def test_names_that_are_no_laws(name: object) -> None:
    with refused(InvalidInput, "no continuous law"):
        ScipyNoise(name)  # type: ignore[arg-type]


def test_wrong_number_of_shapes() -> None:
    with refused(InvalidInput, "shape parameters"):
        ScipyNoise("t", scale=1.0)
    with refused(InvalidInput, "shape parameters"):
        ScipyNoise("norm", 1.0, 2.0, 3.0)
    with refused(InvalidInput, "shape"):
        ScipyNoise("t", float("nan"))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("t", (5.0,)), ("gennorm", (0.7,)), ("cauchy", ())],
)
def test_accepted_without_a_proof_is_not_certified(name: str, shapes: tuple[float, ...]) -> None:
    noise = ScipyNoise(name, *shapes, scale=1.0)
    assert not noise.certified
    assert parse(repr(noise), Noise) == noise


@pytest.mark.parametrize("name", ["norm", "laplace", "logistic"])
def test_reviewed_laws_are_certified(name: str) -> None:
    assert ScipyNoise(name, scale=1.0).certified


def test_replace_keeps_the_rest() -> None:
    assert ScipyNoise("t", 5, scale=1.0).replace(scale=2.0) == ScipyNoise("t", 5, scale=2.0)
    assert ScipyNoise("t", 5).replace(shapes=(6.0,)) == ScipyNoise("t", 6)


@pytest.mark.parametrize("noise", ["ScipyNoise('norm', 0.0, 0.1, scale=1.0)", "ScipyNoise('t', 5, 0, 0.01, scale=1.0)"])
def test_a_place_and_a_scale_are_no_shapes(noise: str) -> None:
    """Scipy takes what comes after the shapes for loc and scale, and the noise would be another than the accounted."""
    with refused(InvalidInput, match="does not take . shape parameters"):
        parse(noise, Noise)
