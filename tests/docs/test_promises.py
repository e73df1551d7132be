"""The page of promises names tests that exist, and has every promise; `make quick` runs a test of each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\| (P\d+) \|(.*)\|$", re.MULTILINE)

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")


def missing(page: str) -> list[str]:
    """The tests that a page names and that are not there."""
    return [f"{file}::{name}" for file, name in NAMED.findall(page) if name not in _tests(ROOT / file)]


def _tests(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_test_on_the_page_exists() -> None:
    assert missing(PAGE) == []


def test_every_promise_is_on_the_page_with_its_tests() -> None:
    rows = dict(ROW.findall(PAGE))
    assert list(rows) == [f"P{number}" for number in range(1, 19)]
    assert [number for number, row in rows.items() if not NAMED.search(row)] == []


def test_quick_has_a_test_of_every_promise() -> None:
    chosen = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").splitlines()
    assert [one for one in chosen if "::" in one and missing(f"`{one}`")] == []
    for number, row in ROW.findall(PAGE):
        named = {f"{file}::{name}" for file, name in NAMED.findall(row)}
        assert named & set(chosen), f"{number} has no test in quick.txt"


def test_the_page_can_be_wrong() -> None:
    assert missing("`tests/docs/test_promises.py::test_nothing` and `tests/nowhere.py::test_it`") == [
        "tests/docs/test_promises.py::test_nothing",
        "tests/nowhere.py::test_it",
    ]
