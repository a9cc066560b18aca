"""The page of the report as people meet it: from a file, on a desk and on a phone, by day and by night."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import report_scene
from report_scene import Played
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from tasks import reports

pytestmark = pytest.mark.browser

EVIL = "</script><img src=x onerror='window.hit=1'>"
RUNS = (
    replace(report_scene.TOUR[0], surface=True),
    *report_scene.TOUR[1:],
    Played(name="elsewhere", partition="other", level=0.8),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the report of an invented study lies."""
    root = tmp_path_factory.mktemp("workspace")
    classes = [EVIL, *"123456789"]
    report_scene.build(root, RUNS, clients=30, rounds=12, seeds=(0, 1), classes=classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        reports.report.fn()
    return (root / "report/index.html").as_uri()


class Page:
    """The report in a window of its own size."""

    def __init__(self, driver: webdriver.Chrome, address: str, width: int, dark: bool = False) -> None:
        self.driver = driver
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.requests()  # of the test before
        driver.get_log("browser")
        driver.get(address)
        driver.execute_script("localStorage.clear()")
        driver.refresh()
        self.until(lambda: all(self.all(f"[data-chart={name}] > svg") for name in ("rounds", "clusters", "spread")))

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def until(self, true: Callable[[], Any]) -> None:
        WebDriverWait(self.driver, 5, poll_frequency=0.05).until(lambda _: true())

    def all(self, query: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", query)

    def one(self, query: str) -> WebElement:
        """The first match, in the middle of the window."""
        found = self.driver.find_element("css selector", query)
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
        return found

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def hover(self, chart: str) -> list[str]:
        """Point at the middle of a chart; the lines of the tip that appears."""
        host = self.one(f"[data-chart={chart}]")
        ActionChains(self.driver).move_to_element(host.find_element("css selector", ":scope > svg")).perform()
        tip = host.find_element("css selector", ".tip")
        self.until(tip.is_displayed)
        return tip.text.split("\n")

    def curves(self, chart: str) -> int:
        return len(self.one(f"[data-chart={chart}]").find_elements("css selector", ".curve"))


@pytest.fixture
def page(chromium: webdriver.Chrome, address: str) -> Page:
    return Page(chromium, address, 1280)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, False), (1280, True)])
def test_the_page_is_whole_asks_for_nothing_and_fits(
    chromium: webdriver.Chrome, address: str, width: int, dark: bool
) -> None:
    page = Page(chromium, address, width, dark)
    assert page.driver.get_log("browser") == []
    asked = page.requests()
    assert address in asked
    assert [url for url in asked if url not in (address, "data:,")] == []
    assert page.script("return document.documentElement.scrollWidth") <= width
    charts = page.all(".chart")
    # 4 for two partitions' curves, spread and holdings each, 4 clusters, a surface, a sweep, 2 + 2 of encoders
    assert len(charts) == 18
    for chart in charts:
        drawn = chart.find_elements("css selector", ":scope > svg :is(path, circle)")
        assert drawn, chart.get_attribute("data-chart")
        svg = chart.find_element("css selector", ":scope > svg").rect
        assert svg["width"] > 150
        assert svg["height"] > 60
    ground = page.script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_text_of_a_chart_hides_another(chromium: webdriver.Chrome, address: str, width: int) -> None:
    page = Page(chromium, address, width)
    for svg in page.all(".chart > svg"):
        boxes = page.script(
            "return [...arguments[0].querySelectorAll('text')].map(t => {"
            "const b = t.getBoundingClientRect(); return [t.textContent, b.left, b.right, b.top + 2, b.bottom - 2]; })",
            svg,
        )
        for (one, left, right, top, bottom), (two, x0, x1, y0, y1) in combinations(boxes, 2):
            apart = right <= x0 or x1 <= left or bottom <= y0 or y1 <= top
            assert apart, f"{one} and {two} overlap in {svg.get_attribute('aria-label')}"


def test_the_verdict_comes_first(page: Page) -> None:
    assert page.one("h1").text == "Which method serves the clients best?"
    assert page.all(".verdict .answer")[0].text.startswith(
        "No clear winner: cp_cfl (92.6 ± 3.1 %) is 1.0 points ahead of cp_cfl_byol (91.6 ± 1.9 %)"
    )
    assert page.all(".verdict .answer")[1].text.startswith("elsewhere reaches")


def test_pointing_at_a_curve_tells_its_numbers(page: Page) -> None:
    lines = page.hover("rounds")
    assert lines[0] in ("Round 6", "Round 7")
    assert len(lines) == 1 + 2 * 7
    assert any("%" in line and "±" in line for line in lines)
    page.script("arguments[0].focus()", page.one("[data-chart=rounds] > svg"))
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert page.one("[data-chart=rounds] .tip").text.split("\n")[0] in ("Round 7", "Round 8")


def test_pointing_at_cells_and_clients_names_them(page: Page) -> None:
    assert page.hover("holdings")[0] == "Client 16, group 1"
    assert page.hover("clusters")[0].startswith("Client 1")
    assert page.hover("surface") == ["a 0, b 0", "loss", "0.2"]
    assert page.hover("sweep")[0].startswith("encoder ")
    dot = page.one("[data-chart=spread] .client")
    ActionChains(page.driver).move_to_element(dot).perform()
    page.until(page.one("[data-chart=spread] .tip").is_displayed)
    assert len(page.all("[data-chart=spread] .client.same")) == 6  # in every run but the pooled one
    assert len(page.one("[data-chart=spread] .tip").text.split("\n")) == 1 + 2 * 6


def test_a_run_can_be_hidden_and_shown_again(page: Page) -> None:
    assert (page.curves("rounds"), page.curves("bytes")) == (7, 5)
    button = page.one(".legend button[data-run='1']")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert (page.curves("rounds"), page.curves("bytes")) == (6, 4)
    page.one(".legend .all").click()
    assert (page.curves("rounds"), page.curves("bytes")) == (7, 5)
    ActionChains(page.driver).key_down(Keys.SHIFT).click(button).key_up(Keys.SHIFT).perform()
    assert (page.curves("rounds"), page.curves("bytes")) == (1, 1)


def test_another_number_can_be_chosen(page: Page) -> None:
    choice = Select(page.one("select[data-for=metric]"))
    assert len(choice.options) > 5
    choice.select_by_visible_text("Accuracy, global test set")
    assert page.curves("rounds") == 1
    choice.select_by_visible_text("Training loss")
    assert page.curves("rounds") == 7
    assert "%" not in page.one("[data-chart=rounds] > svg").text


def test_test_images_and_other_seeds_can_be_seen(page: Page) -> None:
    most = "[data-chart=holdings] text"
    assert page.one(most).text == "50"
    page.one("[data-split=test]").click()
    assert page.one("[data-split=test]").get_attribute("aria-pressed") == "true"
    assert page.one(most).text == "40"
    caption = page.one("[data-recovered='0']")
    assert caption.text.startswith("Seed 0.")
    Select(page.one("select[data-for=seed]")).select_by_visible_text("1")
    assert caption.text.startswith("Seed 1. At the end 96.7 %")


def test_a_click_sorts_the_table(page: Page) -> None:
    def names() -> list[str]:
        return [cell.text for cell in page.all("#methods-0 tbody th b")]

    assert names()[0] == "fedavg"
    head = page.one("#methods-0 thead th:nth-child(3) button")
    head.click()
    assert names()[0] in ("cp_cfl", "centralized_2")
    assert names()[-1] == "fedavg"
    head.click()
    assert names()[0] == "fedavg"
    page.one("#methods-0 thead th:nth-child(10) button").click()  # × FedAvg: what is not known stays last
    assert names()[-1] == "centralized_2"


def test_day_and_night_change_by_a_button(page: Page) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    curve = "return getComputedStyle(document.querySelector('.curve')).stroke"
    day = page.script(ground), page.script(curve)
    page.one("#theme").click()
    night = page.script(ground), page.script(curve)
    assert night[0] == "rgb(20, 24, 29)"
    assert night[1] != day[1]
    page.one("#theme").click()
    assert (page.script(ground), page.script(curve)) == day


def test_a_name_never_runs(page: Page) -> None:
    assert page.all("img") == []
    assert page.script("return window.hit") is None
    assert any(text.text.startswith("</script><img s") for text in page.all("[data-chart=holdings] text"))
