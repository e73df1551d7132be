"""A tenth of the full counts, with fixed seeds: two honest audits and noise x0.7 twice for every law, x0.9 for one.

All that is asked of one law stands in one test, so that the accountant's curves are made once.
"""

from __future__ import annotations

from functools import cache

import pytest

from noisette import Noise, tradeoff
from noisette.audit import audit, step
from tests.audit.mechanisms import LAWS, NAMES, caught, kernel, mechanism, quieter

AT_0_9 = "StudentT"
"""The law with an audit of 20,000 steps a side."""


@pytest.mark.parametrize("which", range(len(LAWS)), ids=NAMES)
def test_a_tenth_of_the_counts(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "tradeoff", cache(tradeoff))
    law: Noise = LAWS[which]
    numbers = which, which + 10  # two rates, with the kernel and without, the same encoder
    assert {kernel(number) for number in numbers} == {"", "off"}
    for number in numbers:
        monkeypatch.setenv("NOISETTE_KERNEL", kernel(number))
        found = audit(mechanism(law, number), steps=2000, seed=number)
        assert found.verdict == "consistent with the claim", found.reasons
        with monkeypatch.context() as patch:
            quieter(patch, 0.7)
            assert caught(mechanism(law, number), steps=2000, seed=number)
    if NAMES[which] == AT_0_9:
        quieter(monkeypatch, 0.9)
        assert caught(mechanism(law, which), steps=20_000, seed=which)
