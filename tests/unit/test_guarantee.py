"""What an epsilon means in words: the numbers are bounds, tight ones, and rounded to the safe side."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisette import Guarantee, Mechanism
from noisette._guarantee import CAUTIONS, advantage, attack_power, percent, probability_in_words, rounded_up, sentences
from noisette.accounting import Tradeoff, guarantee, tradeoff
from noisette.encoders import L2
from noisette.noise import Gaussian

PAIRS = [(0.0, 0.0), (0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-3), (20.0, 1e-9), (900.0, 1e-5)]
ALARMS = np.linspace(0, 1, 401)


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_a_pair_leaves_what_the_trade_off_leaves(epsilon: float, delta: float) -> None:
    curve = Tradeoff(np.array([min(epsilon, 700.0)]), np.array([delta]))
    most = np.array([attack_power(epsilon, delta, alarms) for alarms in ALARMS])
    assert most == pytest.approx(1 - curve.false_negative(ALARMS), abs=1e-12)
    assert advantage(epsilon, delta) == pytest.approx(np.max(most - ALARMS), abs=5e-3)
    assert advantage(epsilon, delta) >= np.max(most - ALARMS) - 1e-12


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_no_test_of_a_gaussian_finds_more_than_is_told(scale: float) -> None:
    """The best test between two normal laws is known in closed form."""
    mechanism = Mechanism(L2(dim=3), Gaussian(scale=scale), rate=1.0, steps=1)
    promise, curve = guarantee(mechanism, 1e-5), tradeoff(mechanism)
    for alarms in (0.01, 0.1):
        truth = stats.norm.cdf(stats.norm.ppf(alarms) + 1 / scale)
        own = 1 - float(curve.false_negative(alarms))
        pair = attack_power(promise.epsilon, promise.delta, alarms)
        assert truth <= own <= pair, "the run's own curve is between the truth and what the pair leaves"
        assert own <= truth * 1.05 + 1e-4
        assert float(percent(own)[:-1]) / 100 >= truth
    coin = stats.norm.cdf(0.5 / scale)
    assert coin - 1e-12 <= (1 + curve.advantage) / 2 <= coin + 1e-3


def test_numbers_are_rounded_to_the_safe_side() -> None:
    rng = np.random.default_rng(0)
    for value in rng.random(300):
        assert value <= float(percent(value)[:-1]) / 100 <= value + 0.00101
        large = float(value * 10.0 ** rng.integers(-3, 6))
        assert large <= float(rounded_up(large).replace(",", "")) * (1 + 1e-12) <= large * 1.0011
        delta = float(value * 1e-3)
        assert 1 / int(probability_in_words(delta).rpartition(" ")[2].replace(",", "")) >= delta * (1 - 1e-12)


def test_four_sentences_with_the_numbers() -> None:
    told = sentences(1.0, 1e-5, lambda alarms: 3 * alarms, 0.25)
    assert len(told) == 4
    assert all(text.endswith(".") and ". " not in text for text in told)
    for number in ("2.72 times", "1 in 100,000"):
        assert number in told[0]
    assert "at most 3.0%" in told[1]
    assert "at most 30.0%" in told[1]
    assert "more than 62.5%" in told[2]


def test_explain_says_the_stamps_first() -> None:
    plain = Guarantee(1.0, 1e-5, "pld", "bound", "0" * 16, "profile")
    lines = plain.explain().splitlines()
    assert len(lines) == 4
    assert f"at most {percent(attack_power(1.0, 1e-5, 0.01))}" in lines[1]
    for flags in (("reproducible",), ("unsafe",), ("reproducible", "unsafe")):
        assert plain.with_flags(*flags).explain().splitlines() == [*(CAUTIONS[name] for name in flags), *lines]
    estimate = Guarantee(1.0, 1e-5, "pld", "estimate", "0" * 16, "profile")
    assert estimate.explain().splitlines()[0] == CAUTIONS["estimate"]
