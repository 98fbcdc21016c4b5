"""The page of ``kdissect report`` in a real browser, under its own policy."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.cli.main import main
from kdissect.phrases import printable
from samples.golden import ROOT
from tests.reports import HOSTILE, hostile_capture

pytestmark = pytest.mark.browser
pytest.importorskip("altair", reason="needs the extra kdissect[report]")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
ActionChains = webdriver.ActionChains
By, Keys = webdriver.common.by.By, webdriver.Keys
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("needs chromium and chromium-driver", allow_module_level=True)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

DRAWN = "return document.body.dataset.drawn"
SECONDS = 60  # that a slow machine may take to draw


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    directory = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        path = directory / f"{name}.html"
        if not path.exists():
            capture = ROOT / f"samples/{name}.pcap.gz"
            if name == "hostile":
                capture = directory / "hostile.pcap"
                capture.write_bytes(hostile_capture())
            assert main(["report", "-o", str(path), str(capture)]) == 0
        return path

    return page


@pytest.fixture
def shown(chromium: Chrome, page_of: Callable[[str], Path]) -> Iterator[Callable[[str], Chrome]]:
    """Opens a page, and afterwards checks that the browser logged nothing and loaded nothing else."""

    def open_page(name: str) -> Chrome:
        chromium.get(page_of(name).as_uri())
        WebDriverWait(chromium, SECONDS).until(lambda browser: browser.execute_script(DRAWN))
        return chromium

    yield open_page
    assert chromium.get_log("browser") == []
    events = [json.loads(event["message"])["message"] for event in chromium.get_log("performance")]
    urls = {
        each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"
    }
    assert {url.partition(":")[0] for url in urls} == {"file"}
    assert len({url.partition("#")[0] for url in urls}) == 1


def ends_of(browser: Chrome) -> list[str]:
    """The labels of the time axis of each chart but the overview."""
    script = """
        return [...document.querySelectorAll('figure:not(#chart-overview, #chart-matrix) .chart svg')].map(
            (svg) => [...svg.querySelectorAll('.role-axis-label text')].map((each) => each.textContent)
                .filter((text) => /^\\d\\d:\\d\\d/.test(text)).sort().join(' '))
    """
    return browser.execute_script(script)  # type: ignore[no-any-return]


def test_all_charts_are_drawn(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    figures = browser.find_elements(By.CSS_SELECTOR, "figure")
    assert len(figures) >= 9
    assert int(browser.execute_script(DRAWN)) == len(figures)
    marks = browser.execute_script(
        "return [...document.querySelectorAll('figure')].map("
        "(each) => each.querySelectorAll('.mark-rect path, .mark-rule line, .mark-symbol path').length)"
    )
    assert min(marks) > 0
    labels = [each.get_attribute("aria-label") for each in browser.find_elements(By.CSS_SELECTOR, ".chart")]
    assert all(labels)
    assert len({*labels}) == len(figures)


def test_zoom_moves_all_charts(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    whole, text = ends_of(browser), browser.find_element(By.ID, "range").text
    button = browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]")
    button.send_keys(Keys.ENTER)
    WebDriverWait(browser, SECONDS).until(
        lambda _: all(before != after for before, after in zip(whole, ends_of(browser), strict=True))
    )
    assert browser.find_element(By.ID, "range").text != text
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=all]").click()
    WebDriverWait(browser, SECONDS).until(lambda _: ends_of(browser) == whole)
    assert browser.find_element(By.ID, "range").text == text


def test_dragging_across_the_overview_zooms(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    whole, text = ends_of(browser), browser.find_element(By.ID, "range").text
    svg = browser.find_element(By.CSS_SELECTOR, "#chart-overview svg")
    drag = ActionChains(browser).move_to_element(svg).click_and_hold()
    drag.move_by_offset(100, 0).move_by_offset(100, 0).release().perform()
    WebDriverWait(browser, SECONDS).until(
        lambda _: all(before != after for before, after in zip(whole, ends_of(browser), strict=True))
    )
    zoomed = browser.find_element(By.ID, "range").text
    first, last = re.findall(r"(\d\d):(\d\d):([\d.]+)", zoomed)
    assert zoomed != text
    assert first < last


def rows_of(table: Any, column: int) -> list[str]:
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return [row.find_elements(By.TAG_NAME, "td")[column].text for row in rows if row.is_displayed()]


def test_tables_sort_and_filter(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    section = next(
        each
        for each in browser.find_elements(By.CSS_SELECTOR, "#tables section")
        if each.find_element(By.TAG_NAME, "h3").text == "APIs"
    )
    table = section.find_element(By.TAG_NAME, "table")
    headings = table.find_elements(By.TAG_NAME, "th")
    names = [heading.text.split(" ")[0] for heading in headings]
    place = names.index("P50")
    button = headings[place].find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].scrollIntoView()", button)
    button.send_keys(Keys.ENTER)
    assert headings[place].get_attribute("aria-sort") == "descending"
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    times = [re.fullmatch(r"([\d.]+)(us|ms|s)", text) for text in rows_of(table, place)]
    amounts = [float(time[1]) * units[time[2]] if time else -1.0 for time in times]
    assert amounts == sorted(amounts, reverse=True)
    assert len({*amounts}) > 3
    button.send_keys(Keys.ENTER)
    assert headings[place].get_attribute("aria-sort") == "ascending"

    field = section.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys("joingroup")
    assert rows_of(table, 0) == ["JoinGroup"]
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.DELETE)
    assert len(rows_of(table, 0)) == len(amounts)


def test_exchanges_in_tables_are_links_to_their_latency(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-cluster")
    link = browser.find_element(By.CSS_SELECTOR, "#tables td a")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    row = browser.find_element(By.CSS_SELECTOR, "tr:target")
    assert row.find_element(By.TAG_NAME, "td").text == link.text
    assert row.is_displayed()


def test_the_numbers_of_a_chart_are_a_table(shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    figure = browser.find_element(By.ID, "chart-groups")
    figure.find_element(By.TAG_NAME, "summary").click()
    table = WebDriverWait(browser, SECONDS).until(lambda _: figure.find_element(By.TAG_NAME, "table"))
    assert [each.text for each in table.find_elements(By.TAG_NAME, "th")] == [
        "from",
        "until",
        "name",
        "kind",
        "detail",
    ]
    assert {*rows_of(table, 2)} == {"calm", "restless"}


def test_hostile_names_do_nothing(shown: Callable[[str], Chrome]) -> None:
    browser = shown("hostile")
    assert browser.title.startswith("Kafka traffic in ")
    text = browser.find_element(By.TAG_NAME, "body").text
    for name in HOSTILE:
        if name.isprintable():
            assert name in text
    assert browser.find_elements(By.CSS_SELECTOR, "img, object, iframe, [onload], [onerror]") == []
    drawn = browser.execute_script(
        "const all = (what) => [...document.querySelectorAll(`#chart-by-client svg ${what}`)];"
        "return {titles: all('.mark-text text').map((each) => each.textContent),"
        " bottoms: all('.mark-rect path').map((each) => Math.round(each.getBoundingClientRect().bottom))}"
    )
    assert {printable(f"client {name}") for name in HOSTILE} <= {*drawn["titles"]}
    assert len({*drawn["bottoms"]}) >= len(HOSTILE)  # each has bars in its own small chart
    figure = browser.find_element(By.ID, "chart-lifetimes")
    figure.find_element(By.TAG_NAME, "summary").click()
    table = WebDriverWait(browser, SECONDS).until(lambda _: figure.find_element(By.TAG_NAME, "table"))
    assert any("<" in name for name in rows_of(table, 2))


@pytest.mark.parametrize("name", ["dark", "print"])
def test_other_looks(name: str, shown: Callable[[str], Chrome]) -> None:
    browser = shown("kafka-4-storm")
    media = (
        {"media": "print"}
        if name == "print"
        else {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        colors = browser.execute_script(
            "return ['.role-axis-label text', 'body'].map("
            "(each) => getComputedStyle(document.querySelector(each))[each === 'body' ? 'color' : 'fill'])"
        )
        assert colors[0] == colors[1]  # text in charts has the color of the page
        assert browser.find_element(By.TAG_NAME, "nav").is_displayed() == (name != "print")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_without_script_the_findings_and_tables_are_there(
    chromium: Chrome, page_of: Callable[[str], Path]
) -> None:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get(page_of("kafka-4-storm").as_uri())
        text = chromium.find_element(By.TAG_NAME, "body").text
        assert "rebalance-storm" in text
        assert "Charts need JavaScript" in text
        assert chromium.find_element(By.CSS_SELECTOR, "#tables td").is_displayed()
        assert not chromium.find_element(By.ID, "zoom").is_displayed()
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        chromium.get_log("browser")
        chromium.get_log("performance")
