"""Comparing noises: every row at the same epsilon, its errors right, and the verdict fair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from noisette import Mechanism, parse
from noisette.accounting import compare, guarantee
from noisette.accounting.compare import DEFAULT_NOISES, Row, verdict
from noisette.encoders import Ranked
from noisette.noise import Cauchy, Gaussian, Laplace, Noise, StudentT

LAWS = [Gaussian(), Laplace(), StudentT(df=9), Cauchy()]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(compare(Mechanism(Ranked(dim=20), Gaussian(), rate=0.1, steps=10), 1.0, 1e-5, LAWS))


def test_every_row_has_the_common_epsilon(rows: list[Row]) -> None:
    """Not above it, and within the 0.1% that calibration promises."""
    for row in rows:
        mechanism = Mechanism(Ranked(dim=20), parse(row.noise, Noise), rate=0.1, steps=10)
        assert 0.999 <= guarantee(mechanism, 1e-5).epsilon <= 1.0


def test_errors_are_those_of_scipy(rows: list[Row]) -> None:
    gaussian, laplace, student, cauchy = rows
    for row, law in (
        (gaussian, stats.norm(scale=gaussian.scale)),
        (laplace, stats.laplace(scale=laplace.scale)),
        (student, stats.t(df=9, scale=student.scale)),
    ):
        assert row.l2 == row.std == pytest.approx(law.std(), rel=1e-9)
        assert row.l1 == pytest.approx(law.expect(np.abs), rel=1e-6)
        assert not row.median
    assert cauchy.l2 is None
    assert cauchy.std is None
    assert cauchy.median
    assert cauchy.l1 == pytest.approx(stats.cauchy(scale=cauchy.scale).ppf(0.75), rel=1e-9)


def test_effective_sigma_is_the_fisher_information_by_quadrature(rows: list[Row]) -> None:
    student = rows[2]
    law, step = stats.t(df=9, scale=student.scale), 1e-5

    def integrand(x: float) -> float:
        slope = (law.logpdf(x + step) - law.logpdf(x - step)) / (2 * step)
        return float(slope**2 * law.pdf(x))

    fisher, _ = integrate.quad(integrand, -np.inf, np.inf)
    assert student.effective_sigma == pytest.approx(1 / math.sqrt(fisher), rel=1e-5)
    assert rows[0].effective_sigma == pytest.approx(rows[0].scale, rel=1e-12)


def test_names_and_json(rows: list[Row]) -> None:
    assert [row.law for row in rows] == ["Gaussian", "Laplace", "StudentT(df=9)", "Cauchy"]
    assert set(rows[0].to_dict()) >= {"noise", "scale", "std", "l1", "l2", "effective_sigma"}


def _row(noise: str, l2: float | None, l1: float = 1.0) -> Row:
    return Row(noise, noise, 1.0, l2, l1, l2, 1.0, l2 is None)


def test_the_verdict_is_plain() -> None:
    gaussian = _row("Gaussian(scale=1.0)", 1.0)
    best, words = verdict([_row("Laplace", 1.2), gaussian])
    assert best is gaussian
    assert words.startswith("Gaussian noise has the least")
    best, words = verdict([laplace := _row("Laplace", 0.5), gaussian])
    assert best is laplace
    assert "Laplace beats Gaussian noise: 50.0%" in words
    assert "ties" in verdict([_row("Laplace", 0.995), gaussian])[1]
    assert verdict([_row("Cauchy", None, 2.0), _row("Odd", None, 1.0)])[0].noise == "Odd"
    assert verdict([_row("Cauchy", None, 0.1), _row("Laplace", 3.0)])[0].noise == "Laplace", "finite errors first"


def test_laplace_wins_in_one_dimension_and_gaussian_in_many() -> None:
    few = Mechanism(Ranked(dim=1), Gaussian(), rate=1.0, steps=1)
    assert verdict(list(compare(few, 1.0, 1e-5, [Gaussian(), Laplace()])))[0].law == "Laplace"
    many = Mechanism(Ranked(dim=2000), Gaussian(), rate=1.0, steps=10)
    assert verdict(list(compare(many, 1.0, 1e-5, [Gaussian(), Laplace()])))[0].law == "Gaussian"


def test_the_paper_s_six_laws_are_among_the_default() -> None:
    assert len(DEFAULT_NOISES) == 8
    assert all(noise.scale is None for noise in DEFAULT_NOISES)
