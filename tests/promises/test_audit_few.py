"""A few of the full counts, with fixed seeds: one honest audit and noise x0.7 once for every law, of which two are
left to `make test`.

Both are asked of a law in one test, so that the accountant's curves are made once. Noise x0.9, which the likelihood
ratio sees after 5,000 steps or more, is in the full counts; test_step.py sees it by its residuals.
"""

from __future__ import annotations

from functools import cache

import pytest

from noisette import Noise, tradeoff
from noisette.audit import audit, step
from tests.support.audited_mechanisms import LAWS, NAMES, caught, kernel, mechanism, quieter

HONEST = 100
"""Steps of an honest audit, whose level is 1e-4 however many there are."""
AT_0_7 = 1000
"""2,000 steps a side are allowed, half of them shows noise x0.7 under these seeds."""
OFTEN = tuple(NAMES.index(name) for name in ("Gaussian", "StudentT"))


def test_with_the_kernel_and_without() -> None:
    assert {kernel(number) for number in OFTEN} == {"", "off"}


@pytest.mark.parametrize(
    "which",
    [pytest.param(n, id=name, marks=[] if n in OFTEN else [pytest.mark.slow]) for n, name in enumerate(NAMES)],
)
def test_a_few_of_the_counts(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "tradeoff", cache(tradeoff))
    monkeypatch.setenv("NOISETTE_KERNEL", kernel(which))
    law: Noise = LAWS[which]
    claim = mechanism(law, which)
    found = audit(claim, steps=HONEST, seed=which)
    assert found.verdict == "consistent with the claim", found.reasons
    quieter(monkeypatch, 0.7)
    assert caught(claim, steps=AT_0_7, seed=which)
