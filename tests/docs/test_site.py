"""Every page of the documentation has a place in the site, without which `make docs` fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def places(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    else:
        for one in part.values() if isinstance(part, dict) else part:
            yield from places(one)


def test_every_page_is_in_the_site() -> None:
    lines = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]  # what stands above has tags of mkdocs' own
    listed = {place for place in places(yaml.safe_load(lines)) if place.startswith("docs/")}
    assert listed == {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
