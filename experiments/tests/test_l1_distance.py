"""The L1 figure: within its bars of the paper's points, and its mathematics against others'."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, special, stats

from noisette import Mechanism
from noisette.accounting.rdp import renyi
from noisette.encoders import Ranked
from noisette.noise import Gaussian, Laplace, StudentT

Here = Callable[[str], ModuleType]


@pytest.mark.parametrize(("law", "bar"), [("gaussian", 0.02), ("laplace", 0.02), ("student_t", 0.03)])
def test_every_point_of_the_paper_comes_back(here: Here, law: str, bar: float) -> None:
    kept, paper = here("kept").Kept("l1_distance"), here("paper")
    scales = {
        "gaussian": [0.9 + 0.1 * i for i in range(6)],
        "laplace": [0.85 + 0.03 * i for i in range(16)],
        "student_t": [0.85 + 0.01 * i for i in range(46)],
    }[law]
    divergence, error = paper.curve("l1_distance", law)
    assert len(divergence) == len(scales)
    for scale, d2, l1 in zip(scales, divergence, error, strict=True):
        ours = kept.find(law=law, scale=round(scale, 2), dim=26010)
        assert ours["d2"] == pytest.approx(d2, rel=bar)
        assert ours["mean"] == pytest.approx(l1, rel=bar)


def test_nine_degrees_of_freedom_do_not_fit_at_the_same_scales(here: Here) -> None:
    """So the eleven are found in the paper's numbers, not put into them."""
    d2, l1 = here("paper").curve("l1_distance", "student_t")
    nine = StudentT(9, 0.85)
    assert here("order_two").divergence(nine, 26010) / d2[0] - 1 < -0.03
    assert 20 * nine.mean_abs / l1[0] - 1 > 0.015


@pytest.mark.parametrize("dim", [20, 26010])
def test_divergence_is_the_accountants(here: Here, dim: int) -> None:
    noise = Laplace(scale=1.1)
    whole = renyi((Mechanism(Ranked(dim), noise, 256 / 60000, 9000),))[0]
    assert here("order_two").divergence(noise, dim) == pytest.approx(whole, rel=1e-9)


def test_divergence_of_gaussian_noise_is_that_of_dp_accounting(here: Here) -> None:
    event = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(1.1))
    other = RdpAccountant(orders=[2]).compose(event, 9000)
    expected = other.get_epsilon(1e-5) - (math.log(0.5) - (math.log(1e-5) + math.log(2)))  # its conversion, undone
    assert here("order_two").divergence(Gaussian(1.1), 26010) == pytest.approx(expected, rel=1e-6)


def test_errors_are_those_of_scipys_laws(here: Here) -> None:
    kept = here("kept").Kept("l1_distance")
    laws = {
        "gaussian": stats.norm(),
        "student_t": stats.t(11),
        "student_t_9": stats.t(9),
        "laplace": stats.laplace(),
        "sech": stats.hypsecant(scale=2 / math.pi),
        "cauchy": stats.cauchy(),
    }
    for law, other in laws.items():
        point = kept.all(law=law, dim=26010)[0]
        assert point["median"] == pytest.approx(20 * point["scale"] * other.ppf(0.75), rel=1e-5)
        if law == "cauchy":
            assert "mean" not in point
            continue
        pieces = ((0, 5), (5, 50), (50, 300))  # scipy's sech overflows further out
        mean = 2 * sum(integrate.quad(lambda x, other=other: x * other.pdf(x), a, b)[0] for a, b in pieces)
        assert point["mean"] == pytest.approx(20 * point["scale"] * mean, rel=1e-5)
        assert point["square"] == pytest.approx(20 * point["scale"] * other.std(), rel=1e-5)


def test_errors_of_variance_gamma_noise_by_quadrature(here: Here) -> None:
    point = here("kept").Kept("l1_distance").all(law="variance_gamma", dim=26010)[0]

    def weighted(power: int) -> float:
        return float(integrate.quad(lambda x: x**power * x**1.5 * special.kv(1.5, x), 0, 60)[0])

    assert point["mean"] == pytest.approx(20 * point["scale"] * weighted(1) / weighted(0), rel=1e-5)


def test_interpolation_is_exact_for_gaussian_noise(here: Here) -> None:
    figure = here("l1_distance")
    d2 = here("order_two").divergence(Gaussian(1.234), 26010)
    found = float(figure.at(d2, figure.line("gaussian", 26010)))
    assert found == pytest.approx(20 * 1.234 * math.sqrt(2 / math.pi), rel=1e-6)


def test_a_curve_that_is_off_does_not_hold(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = here("l1_distance")
    assert figure.claims()[0].verdict.startswith("holds")
    monkeypatch.setitem(figure.BARS, "laplace", 0.001)
    assert figure.claims()[0].verdict.startswith("does not hold")
