"""A tenth of the full counts of faults, with fixed seeds: noise x0.7 twice for every law, x0.9 for one.

Honest audits, the long ones, come once for every law: a tenth of their count would take CI's audits past four minutes.
All that is asked of one law stands in one test, so that the accountant's curves are made once.
"""

from __future__ import annotations

from functools import cache

import pytest

from noisette import Noise, tradeoff
from noisette.audit import audit, step
from tests.audit.mechanisms import LAWS, NAMES, caught, kernel, mechanism, quieter

AT_0_9 = "StudentT"
"""The law that is audited at noise x0.9. 20,000 steps a side are allowed, a quarter of them shows it."""


@pytest.mark.parametrize("which", range(len(LAWS)), ids=NAMES)
def test_a_tenth_of_the_counts(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "tradeoff", cache(tradeoff))
    law: Noise = LAWS[which]
    numbers = which, which + 10  # two rates, with the kernel and without, the same encoder
    assert {kernel(number) for number in numbers} == {"", "off"}
    monkeypatch.setenv("NOISETTE_KERNEL", kernel(which))
    found = audit(mechanism(law, which), steps=2000, seed=which)
    assert found.verdict == "consistent with the claim", found.reasons
    if NAMES[which] == AT_0_9:
        with monkeypatch.context() as patch:
            quieter(patch, 0.9)
            assert caught(mechanism(law, which), steps=5000, seed=which)
    quieter(monkeypatch, 0.7)
    for number in numbers:
        monkeypatch.setenv("NOISETTE_KERNEL", kernel(number))
        assert caught(mechanism(law, number), steps=2000, seed=number)
