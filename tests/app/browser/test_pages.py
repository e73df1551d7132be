"""Pages in a real browser: Debian's Chromium, three widths, light and dark, on paper, without JavaScript and network.

`make browser` runs this. Without a browser it fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, sync_playwright

from noisette.app.reports.html import index_page, run_page
from noisette.app.reports.index import Index
from noisette.app.reports.run import Run
from noisette.app.reports.statement import Statement
from tests.support.finished_runs import finished

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).parents[3] / "build" / "browser"
WIDTHS = {360: 740, 768: 1024, 1280: 800}
NAMES = ("run", "stamped", "index")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("there is no chromium; install Debian's: apt-get install chromium")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run, of one with flags, and of all of them."""
    root = tmp_path_factory.mktemp("pages")
    PICTURES.mkdir(parents=True, exist_ok=True)
    run = finished(root)
    stamped = finished(root, seed=1, unsafe=True, noise="Gaussian(scale=2.0)", statement={})
    texts = {name: run_page(Statement(Run.read(folder))) for name, folder in (("run", run), ("stamped", stamped))}
    places = {name: root / f"{name}.html" for name in NAMES}
    texts["index"] = index_page(Index.read(root / "runs"), places["index"])
    for name, text in texts.items():
        places[name].write_text(text, encoding="utf-8")
    return places


def _opened(browser: Browser, path: Path, width: int, **options: Any) -> tuple[Page, list[str]]:
    """A page, and what the browser has to say against it: errors, warnings, and whatever it asks the network for."""
    page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, **options)
    said: list[str] = []

    def asked(route: Route) -> None:
        if route.request.url != path.as_uri() and not route.request.url.startswith("data:"):
            said.append(f"asks for {route.request.url}")
        route.continue_()

    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.route("**/*", asked)
    page.goto(path.as_uri())
    return page, said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_page(browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: Any) -> None:
    """No error, nothing fetched, nothing wider than the window, and axe-core finds nothing to object to."""
    page, said = _opened(browser, pages[name], width, color_scheme=scheme)
    page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], "it has to be scrolled sideways"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(int(part) for part in paper.strip("rgb()").split(",")[:3]) < 3 * 128
    assert dark == (scheme == "dark")
    assert said == []
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_screen_answers(browser: Browser, pages: dict[str, Path], width: int) -> None:
    """What is promised is seen without scrolling, flags before it; on larger screens to whom and how strong."""
    page, _ = _opened(browser, pages["run"], width)
    least = ["What is promised"] if width == 360 else ["What is promised", "To whom", "How strong"]
    for title in least:
        box = page.get_by_role("heading", name=title).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < WIDTHS[width], title
    page.close()
    page, _ = _opened(browser, pages["stamped"], width)
    for stamp in ("reproducible", "unsafe"):
        box = page.locator(".stamp strong", has_text=stamp).bounding_box()
        assert box is not None
        assert box["y"] < WIDTHS[width]
        assert box["height"] >= 24, "a stamp is large"
    page.close()


@pytest.mark.parametrize("name", NAMES)
def test_without_javascript_it_is_the_same(browser: Browser, pages: dict[str, Path], name: str) -> None:
    shots = []
    for on in (True, False):
        page, _ = _opened(browser, pages[name], 1280, java_script_enabled=on)
        shots.append(page.screenshot(full_page=True))
        page.close()
    assert shots[0] == shots[1]


@pytest.mark.parametrize("name", NAMES)
def test_on_paper(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """White, without the links of the screen, whatever the screen looked like; four sheets at most."""
    page, _ = _opened(browser, pages[name], 1280, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav:visible").count() == 0
    assert [one["id"] for one in Axe().run(page).response["violations"] if one["id"] == "color-contrast"] == []
    paper = page.pdf(path=PICTURES / f"{name}.pdf", format="A4")
    assert 1 <= paper.count(b"/Type /Page\n") <= 4
    page.close()


def test_the_check_can_fail(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """Planted: pale text, no landmark, an error in the console, a picture from elsewhere, a table that is too wide."""
    text = pages["run"].read_text(encoding="utf-8")
    bad = text.replace("--soft: #59616a", "--soft: #c9c9c9").replace("<main", "<div").replace("</main", "</div")
    bad = bad.replace(
        "</body>", '<script>console.error("no")</script><img src="x.png"><p style="min-width: 90rem">wide</p></body>'
    )
    (tmp_path / "bad.html").write_text(bad, encoding="utf-8")
    page, said = _opened(browser, tmp_path / "bad.html", 360)
    found = {one["id"] for one in Axe().run(page).response["violations"]}
    assert {"color-contrast", "landmark-one-main", "image-alt"} <= found
    assert "no" in said
    assert any(text.startswith("asks for") for text in said)
    assert page.evaluate("document.documentElement.scrollWidth") > 360
    page.close()
