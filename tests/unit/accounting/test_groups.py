"""Several examples of one person at once: never less than their true epsilon, and little more."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from noisette import Mechanism, guarantee
from noisette.accounting import group_epsilon
from noisette.accounting.best_of import BestOf
from noisette.accounting.num_trials import GeometricNumTrials
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from noisette.sampling import Poisson
from tests.support.helpers import refused

DELTA = 1e-5
SAMPLED = Mechanism(L2(dim=9), Gaussian(scale=2.0), rate=0.05, steps=200)


@pytest.mark.parametrize(
    ("scale", "size"), [(scale, size) for scale in (1.0, 2.0, 5.0, 20.0) for size in (1, 2, 5, 10) if size < 10 * scale]
)
def test_of_gaussian_noise_it_is_that_of_a_longer_shift(scale: float, size: int) -> None:
    """Whose delta is known in closed form."""
    found = group_epsilon(Mechanism(L2(dim=9), Gaussian(scale=scale), rate=1.0, steps=1), size, DELTA)
    shift = size / scale

    def delta(epsilon: float) -> float:
        far = stats.norm.logcdf(-epsilon / shift - shift / 2) + epsilon
        return float(stats.norm.cdf(-epsilon / shift + shift / 2) - math.exp(far))

    assert delta(found) <= DELTA, "it holds"
    assert delta(found / 1.04 - 0.02) > DELTA, "and not much less does"


@pytest.mark.parametrize("size", [2, 5])
def test_never_below_what_sampled_rows_lose_in_truth(size: int) -> None:
    """Of `size` rows a step draws a binomial number, whose shifts add up: the worst case for Gaussian noise."""
    found = group_epsilon(SAMPLED.replace(steps=20), size, DELTA)
    truth = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        2.0,
        sensitivities=list(range(size + 1)),
        sampling_probs=stats.binom.pmf(range(size + 1), size, 0.05).tolist(),
        pessimistic_estimate=False,
        value_discretization_interval=5e-3,
    ).self_compose(20)
    assert truth.get_epsilon_for_delta(DELTA) <= found <= 1.25 * truth.get_epsilon_for_delta(DELTA)


@pytest.mark.parametrize(
    "spent",
    [
        SAMPLED,
        Mechanism(Ranked(dim=400, profiles=HalfNormal()), StudentT(df=9, scale=5.0), rate=0.1, steps=50),
        SAMPLED.replace(sampling=Poisson(0.05, max_batch=200, population=2000)),
        BestOf((SAMPLED,), GeometricNumTrials(3)),
        [SAMPLED, SAMPLED.replace(noise=Gaussian(scale=3.0))],
    ],
    ids=["gaussian", "ranked", "cut", "search", "two"],
)
def test_every_further_example_costs_more(spent: Mechanism | BestOf | list[Mechanism | BestOf]) -> None:
    one = guarantee(spent, DELTA).epsilon
    found = [group_epsilon(spent, size, DELTA) for size in (1, 2, 3)]
    assert one <= found[0] <= one + 0.02
    assert 2 * one < found[1] < found[2] < 6 * one


def test_where_nothing_can_be_told_it_is_infinite() -> None:
    assert group_epsilon(SAMPLED, 60, DELTA) == math.inf


def test_what_floats_do_not_keep_counts_as_nothing() -> None:
    """An epsilon of 92, for which a release would have to be right to one part in e^92."""
    assert group_epsilon(Mechanism(L2(dim=9), Gaussian(scale=1.0), rate=1.0, steps=1), 10, DELTA) == math.inf


def test_nothing_spent_costs_nothing() -> None:
    assert group_epsilon(SAMPLED.replace(steps=0), 10, DELTA) == 0


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_sizes_that_are_none(size: int) -> None:
    with refused(InvalidInput, match="size"):
        group_epsilon(SAMPLED, size, DELTA)
