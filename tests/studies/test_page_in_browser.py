"""The page of a study in a real browser: it shows everything, sorts, and asks nobody for anything."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lformer.studies import write_study_report
from lformer.studies.results import Results

from .browser import NAMES, Browser, find_browser
from .synthetic import controls_results, language_results, paper_results

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=f"no browser: none of {', '.join(NAMES)} is on PATH")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    paper_results().write(folder / "results.json")
    write_study_report(folder)
    return folder / "report" / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def click(browser: Browser, table: str, heading: str) -> tuple[str, list[str]]:
    """Click a heading; returns its aria-sort and the values below it."""
    place = f"document.getElementById('table-{table}')"
    column = browser.evaluate(f"[...{place}.tHead.rows[0].cells].map(cell => cell.textContent).indexOf('{heading}')")
    assert column >= 0, heading
    browser.evaluate(f"{place}.tHead.rows[0].cells[{column}].querySelector('button').click()")
    order = browser.evaluate(f"{place}.tHead.rows[0].cells[{column}].getAttribute('aria-sort')")
    cells = f"[...{place}.tBodies[0].rows].map(row => row.cells[{column}])"
    return order, browser.evaluate(f"{cells}.map(cell => cell.dataset.value ?? cell.textContent)")


def test_it_shows_everything_without_an_error(browser: Browser, page: Path) -> None:
    browser.open(page)
    sizes = browser.evaluate(
        "[...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) > 10
    assert all(width > 100 and height > 100 for width, height in sizes)
    assert browser.evaluate("document.querySelectorAll('table.sortable').length") > 10
    assert browser.happened("Runtime.exceptionThrown") == []
    assert browser.happened("Runtime.consoleAPICalled") == []
    assert browser.happened("Log.entryAdded") == []


def test_it_reaches_for_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    asked = [event["request"]["url"] for event in browser.happened("Network.requestWillBeSent")]
    assert page.as_uri() in asked, "requests are seen"
    assert all(url == page.as_uri() or url.startswith("data:") for url in asked), asked


def test_headings_sort_up_and_down_by_value(browser: Browser, page: Path) -> None:
    browser.open(page)
    order, values = click(browser, "accuracy-imdb-128", "accuracy (%)")  # mean ± deviation
    numbers = [float(value) for value in values]
    assert (order, numbers) == ("ascending", sorted(numbers))
    assert len(set(numbers)) == 9
    order, values = click(browser, "accuracy-imdb-128", "accuracy (%)")
    assert (order, [float(value) for value in values]) == ("descending", sorted(numbers, reverse=True))
    order, values = click(browser, "accuracy-imdb-128", "encoder parameters")  # 203,264 before 1,000,000
    numbers = [float(value) for value in values]
    assert (order, numbers) == ("ascending", sorted(numbers))
    marked = "document.querySelectorAll('#table-accuracy-imdb-128 [aria-sort]').length"
    assert browser.evaluate(marked) == 1, "one column at a time"


def test_missing_cells_stay_last(browser: Browser, page: Path) -> None:
    browser.open(page)
    for expected in ("ascending", "descending"):
        order, values = click(browser, "accuracy-imdb-128", "Δ accuracy (points)")  # negative numbers
        assert order == expected
        assert values[-1] == ""
        numbers = [float(value) for value in values[:-1]]
        assert numbers == sorted(numbers, reverse=expected == "descending")


def test_words_sort_as_words(browser: Browser, page: Path) -> None:
    browser.open(page)
    _, values = click(browser, "efficiency", "model")
    assert values == sorted(values)


def test_the_papers_columns_can_be_hidden(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "getComputedStyle(document.querySelector('th.paper')).display !== 'none'"
    assert browser.evaluate(shown)
    browser.evaluate("document.getElementById('show-paper').click()")
    assert not browser.evaluate(shown)


@pytest.mark.parametrize("make", [controls_results, language_results])
@pytest.mark.parametrize("width", [390, 1280])
def test_other_studies_fit_the_window(
    browser: Browser, tmp_path: Path, make: Callable[[], Results], width: int
) -> None:
    make().write(tmp_path / "results.json")
    write_study_report(tmp_path)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    browser.open(tmp_path / "report" / "report.html")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('figure svg').length") > 1
    assert browser.happened("Runtime.exceptionThrown") == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_window(browser: Browser, page: Path, width: int, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    browser.open(page)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    ink = browser.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert ink == browser.evaluate("getComputedStyle(document.body).color"), "figures are in the ink of the page"
