"""Fixtures that every test may use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The offline mirror of real images; the test is skipped where there is none."""
    folder = Path(os.environ.get("FEDCORE_MIRROR", ""))
    if not (folder / "manifest.json").is_file():
        pytest.skip("no image mirror: set FEDCORE_MIRROR to its folder")
    return folder


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A headless browser; the test is skipped where there is none."""
    if not (CHROMIUM.exists() and DRIVER.exists()):
        pytest.skip("no Chromium with its driver: install the packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(str(DRIVER)))
    yield driver
    driver.quit()
