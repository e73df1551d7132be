"""The epsilon axis: the paper's epsilons to three digits, and ours as the accountants give them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from noisette import Mechanism
from noisette.accounting import guarantee
from noisette.encoders import L2, Ranked
from noisette.noise import Gaussian, StudentT

Here = Callable[[str], ModuleType]
RATE, STEPS, DELTA = 256 / 60000, 14062, 1e-5


def test_the_seven_gaussian_epsilons_to_three_digits(here: Here) -> None:
    kept = here("kept").Kept("epsilon_axis")
    for series in ("dpsgd", "encoded_gaussian"):
        _, theirs = here("paper").curve("fixed_epochs_mnist", series)
        ours = [kept.find(law="gaussian", scale=s)["classic"] for s in (0.7, 0.85, 0.9, 1.0, 1.1, 1.25, 1.5)]
        assert [f"{value:.3g}" for value in ours] == [f"{value:.3g}" for value in theirs]
        assert ours == pytest.approx(theirs, rel=3e-5)


def test_student_t_at_scale_one_is_off_by_six_per_mille(here: Here) -> None:
    found = {point["scale"]: point["classic"] / theirs - 1 for theirs, point in here("epsilon_axis").nearest()}
    assert 0.005 < found[1.0] < 0.007


def test_the_nearest_scale_is_nearest(here: Here) -> None:
    figure = here("epsilon_axis")
    grid = figure.KEPT.all(law="student_t")
    for theirs, point in figure.nearest():
        assert all(abs(point["classic"] - theirs) <= abs(other["classic"] - theirs) for other in grid)
    assert len(figure.nearest()) == 13


def test_five_degrees_of_freedom_fit_better_than_nine(here: Here) -> None:
    figure = here("epsilon_axis")
    nine = [abs(point["classic"] / theirs - 1) for theirs, point in figure.nearest()[figure.BY_HAND :]]
    assert figure.off("student_t_5") < 0.012 < 0.02 < max(nine)


@pytest.mark.parametrize(
    ("law", "scale", "mechanism"),
    [
        ("gaussian", 1.1, Mechanism(L2(26010), Gaussian(1.1), RATE, STEPS)),
        ("student_t", 1.0, Mechanism(Ranked(26010), StudentT(9, 1.0), RATE, STEPS)),
    ],
)
def test_kept_epsilons_are_what_the_accountants_say_today(
    here: Here, law: str, scale: float, mechanism: Mechanism
) -> None:
    """But for what floats cost, some millionths, which they do not include."""
    point = here("kept").Kept("epsilon_axis").find(law=law, scale=scale)
    assert point["classic"] == pytest.approx(guarantee(mechanism, DELTA, "rdp-classic").epsilon, rel=1e-5)
    assert point["pld"] == pytest.approx(guarantee(mechanism, DELTA, "pld").epsilon, rel=1e-5)


def test_certified_gaussian_epsilons_are_those_of_dp_accounting(here: Here) -> None:
    kept = here("kept").Kept("epsilon_axis")
    for sigma in (0.9, 1.5):
        event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(sigma))
        other = PLDAccountant(value_discretization_interval=1e-4).compose(event, STEPS).get_epsilon(DELTA)
        assert kept.find(law="gaussian", scale=sigma)["pld"] == pytest.approx(other, rel=2e-4)


def test_sampled_profiles_cost_a_little_more_than_one(here: Here) -> None:
    kept = here("kept").Kept("epsilon_axis")
    for point in kept.all(law="student_t_sampled"):
        one = kept.find(law="student_t", scale=point["scale"])["pld"]
        assert one < point["pld"] < 1.01 * one
