"""Full counts of the audit, for `make slow`: about four hours of one core. What is done is not done again.

Finished audits are kept in pytest's cache, under a name made of the library's source: stop and start as you like, and
`pytest --cache-clear` begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

import noisette
from noisette import Noise
from noisette.audit import audit
from tests.audit.mechanisms import LAWS, NAMES, mechanism, quieter

pytestmark = pytest.mark.slow


def _audits(request: pytest.FixtureRequest, name: str, law: Noise, count: int, steps: int) -> list[bool]:
    """Verdicts of `count` audits with fresh seeds: whether each refutes."""
    cache = request.config.cache
    assert cache is not None
    root = Path(noisette.__file__).parent
    source = b"".join(path.read_bytes() for path in sorted(root.rglob("*.py")))
    file = cache.mkdir("audits") / f"{name}-{type(law).__name__}-{hashlib.sha256(source).hexdigest()[:12]}.jsonl"
    done = file.read_text().splitlines() if file.exists() else []
    for number in range(len(done), count):
        seed = int.from_bytes(os.urandom(6))
        found = audit(mechanism(law, number), steps=steps, seed=seed)
        done.append(json.dumps({"seed": seed, "refuted": found.refuted, "reasons": found.reasons}))
        file.write_text("\n".join(done) + "\n")
    return [json.loads(line)["refuted"] for line in done]


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_no_false_alarm_in_200(request: pytest.FixtureRequest, law: Noise) -> None:
    """23 for each of nine laws. By chance alone, one in fifty such tests of all laws may fail."""
    assert not any(_audits(request, "honest", law, count=23, steps=2000))


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_noise_times_0_7_in_20_of_20(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, law: Noise
) -> None:
    quieter(monkeypatch, 0.7)
    assert all(_audits(request, "x0.7", law, count=20, steps=2000))


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_noise_times_0_9_in_9_of_10(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, law: Noise
) -> None:
    quieter(monkeypatch, 0.9)
    assert sum(_audits(request, "x0.9", law, count=10, steps=20_000)) >= 9
