"""Full counts of the audit, for `make slow`: it takes hours. What is done is not done again.

Every finished audit is a line in pytest's cache, in a file named after the code that it ran: stop and start as you
like. Comments are no code, and what is changed while the tests run counts from the next start on.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import noisette
from noisette import Mechanism, Noise, tradeoff
from noisette.audit import audit, step
from tests.support.audited_mechanisms import LAWS, NAMES, caught, kernel, mechanism, quieter

pytestmark = pytest.mark.slow

PARTS = ("_native", "accounting", "audit", "encoders", "_gradients", "noise", "sampling", "training")
FILES = ("random.py", "mechanism.py", "_private.py", "_release.py")


def _code(path: Path) -> str:
    """What a file does, without comments, docstrings and layout."""
    if path.suffix != ".py":
        return path.read_text()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


@cache
def code() -> str:
    """Of which all audits of one start are; found when the first one is asked for."""
    root = Path(noisette.__file__).parent
    paths = [root / name for name in FILES]
    for part in PARTS:
        paths += (path for path in (root / part).rglob("*") if path.suffix in {".py", ".cpp", ".h", ".hpp"})
    return hashlib.sha256("".join(map(_code, sorted(paths))).encode()).hexdigest()[:12]


@pytest.fixture(autouse=True)
def _claims_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "tradeoff", _claim)


_claim = cache(tradeoff)


class Audits:
    """Audits with fresh seeds, kept as they are done."""

    def __init__(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        assert request.config.cache is not None
        self._folder, self._patch = request.config.cache.mkdir("audits"), monkeypatch

    def refuted(self, name: str, law: Noise, count: int, refutes: Callable[[Mechanism, int], bool]) -> list[bool]:
        """Whether ``refutes(mechanism, seed)``, for each of `count` mechanisms with this noise."""
        file = self._folder / f"{name}-{type(law).__name__}-{code()}.jsonl"
        done = file.read_text().splitlines() if file.exists() else []
        for number in range(len(done), count):
            self._patch.setenv("NOISETTE_KERNEL", kernel(number))
            audited, seed, began = mechanism(law, number), int.from_bytes(os.urandom(6)), time.process_time()
            found = {"refuted": refutes(audited, seed), "seed": seed, "kernel": kernel(number) or "on"}
            done.append(json.dumps(found | {"mechanism": repr(audited), "seconds": time.process_time() - began}))
            file.write_text("\n".join(done) + "\n")
        return [json.loads(line)["refuted"] for line in done]


@pytest.fixture
def audits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Audits:
    return Audits(request, monkeypatch)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_no_false_alarm_in_200(audits: Audits, law: Noise) -> None:
    """23 for each of nine laws, with and without the kernel. By chance alone, one in fifty such tests may fail."""
    assert not any(audits.refuted("honest", law, 23, lambda m, seed: audit(m, steps=2000, seed=seed).refuted))


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_noise_times_0_7_in_20_of_20(audits: Audits, monkeypatch: pytest.MonkeyPatch, law: Noise) -> None:
    quieter(monkeypatch, 0.7)
    assert all(audits.refuted("x0.7", law, 20, lambda m, seed: caught(m, steps=2000, seed=seed)))


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_noise_times_0_9_in_9_of_10(audits: Audits, monkeypatch: pytest.MonkeyPatch, law: Noise) -> None:
    """20,000 steps a side are allowed, and are taken where a quarter of them does not show it."""
    quieter(monkeypatch, 0.9)

    def within_20000(claim: Mechanism, seed: int) -> bool:
        return caught(claim, steps=5000, seed=seed) or caught(claim, steps=20_000, seed=seed + 1)

    assert sum(audits.refuted("x0.9", law, 10, within_20000)) >= 9
