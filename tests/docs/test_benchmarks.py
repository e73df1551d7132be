"""docs/performance.md shows what was measured, and a measurement writes no page."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_tables_are_what_the_results_give() -> None:
    page: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "page.py"))
    text, found = page["PAGE"].read_text(), json.loads(page["RESULTS"].read_text())
    assert page["with_numbers"](text, found) == text, "run: make bench-page"
    found["memory"]["big"]["plain"][0] += 1
    assert page["with_numbers"](text, found) != text


def test_measuring_writes_results_alone() -> None:
    for path in BENCHMARKS.glob("*.py"):
        if path.name != "page.py":
            assert not re.search(r'"docs"|performance\.md', path.read_text()), path


def test_a_walk_counts_every_call_into_the_package() -> None:
    walk: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "walk.py"))
    step = walk["step_of_an_mlp"]()
    once, twice = walk["walked"](step), walk["walked"](lambda: (step(), step()))
    assert once["_release.py", "release"] == 1
    assert twice == once + once
    other = walk["step_of_an_mlp"]()
    assert walk["walked"](step) == once, "another run counts"
    assert walk["walked"](other) == once
    assert not walk["walked"](lambda: json.dumps({}))
