"""docs/results.md is what the kept points give, to the letter, and shows what exists."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from experiments.tests.conftest import EXPERIMENTS

PAGE = EXPERIMENTS.parent / "docs" / "results.md"
PNG = b"\x89PNG\r\n\x1a\n"
Here = Callable[[str], ModuleType]


def test_the_page_is_what_the_points_give(here: Here) -> None:
    assert PAGE.read_text() == here("page").text(), "run: python experiments/figures.py --draw"


def test_every_picture_on_the_page_exists(here: Here) -> None:
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE.read_text())
    assert len(shown) >= len(here("page").drawn()) >= 3
    for link in shown:
        assert (PAGE.parent / link).read_bytes().startswith(PNG), link


def test_every_figure_keeps_to_the_form(here: Here) -> None:
    for name in here("page").drawn():
        source = (EXPERIMENTS / f"{name}.py").read_text()
        assert len(source.splitlines()) <= 150, name
        module = here(name)
        assert module.__doc__, name
        assert all(callable(getattr(module, part)) for part in ("fill", "draw", "claims", "section")), name


@pytest.mark.research
@pytest.mark.parametrize(
    ("figure", "key", "number", "shown"),
    [
        ("l1_distance", {"law": "variance_gamma", "dim": 20}, "mean", None),
        ("epsilon_axis", {"law": "gaussian", "scale": 0.85}, "pld", "| {:.3f} |"),
        ("gradient_distribution", {"data": "mnist", "epochs": 5}, "zeros", "MNIST, after 5 epochs | {:.1%} |"),
    ],
)
def test_numbers_follow_the_points(
    copy: Path, figure: str, key: dict[str, Any], number: str, shown: str | None
) -> None:
    page = importlib.import_module("page")
    path = copy / "results" / f"{figure}.json"
    points = json.loads(path.read_text())
    planted = [one for one in points if key.items() <= one.items()]
    before, was = page.text(), planted[0][number]
    for point in planted:
        point[number] *= 1.1
    path.write_text(json.dumps(points))
    after = page.text()
    assert before != after
    if shown is not None:
        assert shown.format(was) in before
        assert shown.format(was) not in after
        assert shown.format(1.1 * was) in after


@pytest.mark.research
def test_a_figure_without_module_or_picture_is_left_out(copy: Path) -> None:
    page = importlib.import_module("page")
    assert "## The epsilon axis" in page.text()
    (copy / "results" / "epsilon_axis.png").unlink()
    assert "epsilon_axis" in page.here()
    assert "## The epsilon axis" not in page.text()
    (copy / "l1_distance.py").unlink()
    assert "l1_distance" not in page.here()
    assert "## L1 error" not in page.text()


@pytest.mark.research
def test_an_error_within_a_figure_is_not_hidden(copy: Path) -> None:
    (copy / "results" / "l1_distance.json").write_text("[]")
    with pytest.raises(Exception, match=r"l1_distance\.json has no point"):
        importlib.import_module("page").text()


@pytest.mark.research
def test_writing_goes_beside_the_folder(copy: Path) -> None:
    page = importlib.import_module("page")
    assert page.write() == copy.parent / "docs" / "results.md"
    assert (copy.parent / "docs" / "results.md").read_text() == page.text()
