"""Pages stand alone, say no more than they may, and leave texts of others as texts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from noisette._guarantee import rounded_up
from noisette.accounting import guarantee
from noisette.app import datasets
from noisette.app.reports._svg import ticks
from noisette.app.reports.run import Run
from tests.promises.test_nothing_private import OPTIONS, _data, _neighbour, _Stage, stage
from tests.support.command import Command
from tests.support.damaged_runs import begun
from tests.support.finished_runs import WORDS, finished

__all__ = ["stage"]

MOST = 400_000


class _Outline(HTMLParser):
    """Tags with their attributes, and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_alone(page: str) -> None:
    """Nothing is fetched, nothing runs, and it is not too large."""
    assert len(page.encode()) <= MOST
    outline = _Outline(page)
    assert not {tag for tag, _ in outline.tags} & {"script", "iframe", "object", "embed", "img", "base"}
    for tag, attributes in outline.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:,")) or (tag == "a" and ":" not in value), value
    assert "url(" not in page
    assert "@import" not in page


def test_a_page_stands_alone(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path)
    assert noisette("report", folder).code == 0
    page = (folder / "page.html").read_text()
    check_alone(page)
    outline = _Outline(page)
    assert [tag for tag, _ in outline.tags if tag in ("header", "main", "nav", "footer", "h1")] == [
        "header", "h1", "main", "nav", "footer",
    ]  # fmt: skip
    for word in WORDS.values():
        assert word in outline.text
    assert "<b>forms</b>" not in page
    assert str(tmp_path) not in page
    assert "not stated" in outline.text


def test_markdown_shows_texts_as_they_are(noisette: Command, tmp_path: Path) -> None:
    noisette("report", finished(tmp_path), "--markdown", "card.md")
    card = (tmp_path / "card.md").read_text()
    assert r"The Institute \| of \*Forms\*" in card
    assert r"\<b\>forms" in card
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows), "every row has two cells"


def _shown(noisette: Command, place: Path) -> dict[str, bytes]:
    noisette("report", "runs/digits-0001", "--yaml", "r.yaml", "--markdown", "c.md", "-o", "page.html")
    noisette("report", "runs", "-o", "index.html")
    names = ("page.html", "r.yaml", "c.md", "index.html")
    told = noisette("show", "runs/digits-0001", "--statement").out.encode()
    return {name: (place / name).read_bytes() for name in names} | {"statement": told}


@pytest.mark.parametrize(
    "options", [pytest.param((), marks=pytest.mark.slow, id="usual"), pytest.param(("--unsafe-show-private-metrics",))]
)
def test_neighbours_have_the_same_pages(noisette: Command, stage: _Stage, options: tuple[str, ...]) -> None:
    """With the releases of the first run: where private metrics are in a run's files, they are on no page."""
    data = _data()
    stage(data, *options)
    stage(data, *options)
    pages = _shown(noisette, Path.cwd())
    stage(_neighbour(data, torch.full((1, 4, 4), 9.0), 2), *options)
    left = _shown(noisette, Path.cwd())
    assert [name for name in pages if left[name] != pages[name]] == [], "a page tells neighbours apart"


def test_no_page_tells_a_training_loss(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path, unsafe=True)
    (tmp_path / "runs" / "digits-0001").symlink_to(folder)
    shown, metrics = _shown(noisette, tmp_path), folder / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert all("train_loss" in line for line in lines)
    metrics.write_text("".join(json.dumps(line | {"train_loss": 9.75}) + "\n" for line in lines))
    assert _shown(noisette, tmp_path) == shown, "a training loss is told"


NOISY = re.compile(r'(?<=<th scope="row">Test accuracy</th><td>)[0-9.]+%|<title id="progress">.*?</svg>', re.DOTALL)
"""What follows from a model that was released: its accuracy on public examples, in the end and on the way."""


def check_pages_differ_where_the_noise_does(pages: list[str]) -> None:
    """Byte by byte, but for what follows from the released model, which does differ."""
    assert pages[0] != pages[1], "so little noise, and nothing shows: the test sees nothing"
    rests = [NOISY.subn("", page) for page in pages]
    assert [count for _, count in rests] == [2, 2]
    assert rests[0] == rests[1], "a page tells neighbours apart"


def test_with_the_same_seed_they_differ_where_the_noise_does(
    noisette: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Accuracies come from released models. Nothing else on a page depends on the examples."""
    data, pages = _data(), []
    for number, one in enumerate((data, _neighbour(data, torch.full((1, 4, 4), 9.0), 2))):
        (place := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setattr(datasets, "load", lambda *_, one=one: one)
        assert noisette(*OPTIONS, "--noise", "Gaussian(scale=0.2)", "--batch", "50", "--seed", "7").code == 0
        assert noisette("report", "runs/digits-0001").code == 0
        pages.append((place / "runs/digits-0001/page.html").read_text())
    check_pages_differ_where_the_noise_does(pages)


def test_an_index(noisette: Command, tmp_path: Path) -> None:
    first, second = finished(tmp_path), finished(tmp_path, seed=1, noise="Gaussian(scale=2.0)")
    half = begun(tmp_path / "runs")
    half.rename(tmp_path / "runs" / "half-0001")
    (broken := finished(tmp_path) / "ledger.jsonl").unlink()
    noisette("report", first)
    told = noisette("report", "runs", "--json")
    assert (told.json["unfinished"], told.json["unreadable"]) == (["half-0001"], [broken.parent.name])
    assert [row["flags"] for row in told.json["runs"]] == [[], ["reproducible"]]
    assert f"{broken.parent.name} is left out" in told.err
    page = (tmp_path / "runs" / "index.html").read_text()
    check_alone(page)
    assert f'href="{first.name}/page.html"' in page
    assert f'href="{second.name}/page.html"' not in page
    assert '<br><span class="chip">reproducible</span></td>' in page, "a stamp stands with its epsilon"
    assert "Incomplete" in page
    assert "half-0001: has paid for 2 steps" in page
    assert str(tmp_path) not in page
    together = guarantee([Run.read(first).mechanism, Run.read(second).mechanism], 1e-5).epsilon
    assert f"ε&nbsp;≤&nbsp;{rounded_up(together)}" in page
    noisette("report", "runs", "--yaml", "a.yaml").assert_refused("neither YAML nor Markdown")


@pytest.mark.parametrize(("low", "high"), [(0, 1e-6), (0, 0.07), (0, 1), (0, 3.1), (0, 999), (0.2, 0.9)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 6
    assert low <= found[0] + 1e-12
    assert found[-1] <= high * (1 + 1e-9)
