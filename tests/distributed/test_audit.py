"""The audit of a step, run by two processes: it finds nothing, and it finds noise that processes average."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noisette import Mechanism
from noisette.audit import audit
from noisette.encoders import L2
from noisette.noise import Gaussian
from tests.support.child_record import average_the_noise, sum_the_noise
from tests.support.children import together


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [(None, "consistent with the claim"), (average_the_noise, "REFUTED"), (sum_the_noise, "REFUTED")],
    ids=["honest", "averaged", "summed"],
)
def test_an_audit_through_two_processes(fault: Callable[[], None] | None, verdict: str, tmp_path: Path) -> None:
    """Level 1e-4 with a fixed seed; the canary comes from it, and every process must hold the same."""
    mechanism = Mechanism(L2(dim=8), Gaussian(scale=1.0), rate=0.5, steps=10)

    def work(process: int) -> str:
        if fault is not None:
            fault()
        return audit(mechanism, steps=300, seed=0).verdict

    assert together(2, work, tmp_path / "run") == [verdict] * 2
