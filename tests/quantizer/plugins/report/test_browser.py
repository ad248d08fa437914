"""The page in a browser: headless Chromium of the system, driven by playwright, which downloads nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from qprof_onnx.quantizer.plugins.report.content import Report, WhatIf
from qprof_onnx.quantizer.plugins.report.html import page as html_of

from .test_files import hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser, or skip and say what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="of the extra browser")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this system: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Opened:
    """A page that is open, and what it said and asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def opened(browser: Browser, whole: Report, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Return the report in a wide, light window; names of the model are hostile."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html_of(hostile(whole)), encoding="utf-8")
    return open_page(browser, file)


def open_page(
    browser: Browser, file: Path, *, width: int = 1400, dark: bool = False, state: str = "visible"
) -> Opened:
    """Open a file in a window of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.messages.append(message.text))
    found.page.on("pageerror", lambda error: found.messages.append(str(error)))
    found.page.on("dialog", lambda dialog: (found.messages.append(dialog.message), dialog.dismiss()))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(file.as_uri())
    found.page.wait_for_selector("#map rect", state=state)  # type: ignore[arg-type]
    return found


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_the_page_opens_without_a_message_and_asks_for_nothing_else(opened: Opened) -> None:
    assert opened.messages == []
    assert len(opened.requests) == 1
    assert opened.requests[0].startswith("file:")


def test_a_search_leaves_the_rows_that_have_its_words(opened: Opened, whole: Report) -> None:
    page, wanted = opened.page, whole.tensors[-1].name
    page.fill('input[data-for="tensor-table"]', wanted)
    shown = page.locator("#tensor-table tbody tr:visible")
    assert shown.count() == sum(wanted.lower() in f"{t.name} {t.operator}".lower() for t in whole.tensors)
    assert f"{shown.count()} of {len(whole.tensors)} shown" in page.inner_text('[data-count="tensor-table"]')
    page.fill('input[data-for="tensor-table"]', "")


def test_a_column_sorts_both_ways_and_says_so(opened: Opened, whole: Report) -> None:
    page, column = opened.page, "#tensor-table thead th:nth-child(8)"
    assert page.inner_text(column).startswith("maximum")
    values = sorted(tensor.maximum for tensor in whole.tensors)
    cell = "#tensor-table tbody tr:first-child td:nth-child(8)"
    for expected, direction in ((values[-1], "descending"), (values[0], "ascending")):
        page.click(f"{column} button")
        assert page.get_attribute(column, "aria-sort") == direction
        assert float(page.get_attribute(cell, "data-v") or "nan") == pytest.approx(expected)


def test_a_click_on_a_tensor_shows_its_histogram(opened: Opened, whole: Report) -> None:
    page = opened.page
    row = next(at for at, tensor in enumerate(whole.tensors) if tensor.parameters is not None)
    page.click(f'#tensor-table [data-show="{row}"]')
    assert whole.tensors[row].name in page.inner_text("#tensor-card h3")
    assert page.locator("#tensor-card .hist rect").count() > 5
    assert page.locator("#tensor-card .hist .cal.on").count() == 1
    page.click("#tensor-card details summary")
    page.wait_for_selector("#tensor-card details table tbody tr")


def test_a_click_on_a_node_and_the_keyboard_show_its_card(opened: Opened, whole: Report) -> None:
    page = opened.page
    other = page.locator("#graph-view g.node:not(.on)").first
    number = int(other.get_attribute("data-at") or "-1")
    other.click()
    assert whole.nodes[number].name in page.inner_text("#node-card h3")
    page.locator("#graph-view g.node:not(.on)").first.focus()
    page.keyboard.press("Enter")
    assert whole.nodes[number].name not in page.inner_text("#node-card h3")
    page.fill("#node-search", whole.nodes[0].name)
    assert whole.nodes[0].name in page.inner_text("#node-card h3")


def test_of_a_good_model_the_first_sections_alone_are_open(
    browser: Browser, estimated: Report, whole: Report, tmp_path: Path
) -> None:
    assert estimated.verdict.level == "good"
    tried = WhatIf("--calibrator kl", "good, 41.0 dB (measured)", "logits", 41.0, 1.0, None)
    file = tmp_path / "report.html"
    file.write_text(html_of(replace(estimated, what_ifs=(tried,))), encoding="utf-8")
    page = open_page(browser, file, state="attached").page
    assert page.is_visible("#try")
    assert page.is_visible("#provenance")
    assert not page.is_visible("#tensors")
    page.click('nav a[href="#graph"]')
    page.wait_for_selector("#graph-view g.node.on")
    assert page.locator("#graph").evaluate("part => part.getBoundingClientRect().top") < 100
    assert page.locator("#graph-view").evaluate("view => view.clientWidth") > 300
    page.context.close()
    assert 'id="more"' not in html_of(whole)


def test_the_theme_button_says_whether_it_is_pressed(opened: Opened) -> None:
    page = opened.page
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.click("#theme")
    assert page.get_attribute("#theme", "aria-pressed") == "false"


def test_the_first_key_leads_past_the_contents(opened: Opened) -> None:
    page = opened.page
    page.reload()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_the_outputs_fit_into_a_laptop_window(browser: Browser, whole: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    worst = replace(whole.outputs[0], kind="a decision", needed=18.0, agreement=1.0)
    file.write_text(html_of(replace(whole, outputs=(worst,))), encoding="utf-8")
    found = open_page(browser, file, width=1280)
    wider = "(region) => region.scrollWidth - region.clientWidth"
    assert found.page.eval_on_selector("#outputs .scroll", wider) <= 0
    found.page.context.close()


@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1400, True)])
def test_no_window_is_too_narrow(
    browser: Browser, whole: Report, tmp_path: Path, width: int, dark: bool
) -> None:
    file = tmp_path / "report.html"
    file.write_text(html_of(whole), encoding="utf-8")
    found = open_page(browser, file, width=width, dark=dark)
    assert found.messages == []
    assert overflow(found.page) <= 0
    found.page.context.close()
