"""The dashboard in a browser, Chromium without a screen: while a cluster comes up, in light and dark, wide and narrow.

Screenshots are left in the folder that WINDROW_SCREENSHOTS names, to be looked at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import SMALL, SPEED, Shell

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
HARVESTER, CREDENTIALS, MANAGER = "site/harvester.yaml", "site/credentials.yaml", "manager/manager.yaml"
TWO_LOOKS = ((360, "dark"), (1440, "light"))
SIZES = ((360, 800), (1440, 900), (2560, 1200))

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="chromium or chromedriver is not installed"
    ),
]


class Browser:
    """Chromium, with what a test asks of a page."""

    def __init__(self, driver: Any, pictures: Path) -> None:
        self.driver, self._pictures = driver, pictures

    def text(self) -> str:
        return str(self.driver.find_element("tag name", "main").text)

    def wait_for(self, condition: Callable[[], object], what: str, within: float = 40) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n{self.text()}"
            time.sleep(0.1)

    def set_look(self, width: int, height: int, scheme: str) -> None:
        """The size of the window, and whether its user prefers light or dark; nothing moves, so that no colour is between two."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def violations(self) -> list[str]:
        """What axe-core finds on the page."""
        import axe_core_python

        script = next(Path(axe_core_python.__file__).parent.glob("axe*.js")).read_text()
        self.driver.execute_script(script)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations));"
        )
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]

    def texts(self, selector: str) -> list[str]:
        """Of what matches, in one step: a page that follows the API may be another in the next."""
        script = "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText.trim());"
        return list(self.driver.execute_script(script, selector))

    def click(self, selector: str, text: str = "", place: int = 0) -> None:
        """The first that matches and has this text, in one step; with `place` -1 the last."""
        script = """const found = [...document.querySelectorAll(arguments[0])]
            .filter(one => !arguments[1] || one.innerText.trim() === arguments[1]);
            found.at(arguments[2]).click();"""
        self.driver.execute_script(script, selector, text, place)

    def look(self, name: str, looks: Sequence[tuple[int, str]] = ()) -> None:
        """The page at every size, light and dark, or at these widths: a picture of each, no violation, nothing wider than the
        window."""
        for scheme in ("light", "dark"):
            for width, height in SIZES:
                if looks and (width, scheme) not in looks:
                    continue
                self.set_look(width, height, scheme)
                self.driver.save_screenshot(str(self._pictures / f"{name}-{width}-{scheme}.png"))
                wide = self.driver.execute_script("return document.documentElement.scrollWidth")
                assert wide <= width, f"{name} is {wide} px wide at {width}"
                # Contrast is another in each scheme, the layout at each width: two of the six have all of both.
                if (width, scheme) in ((1440, "light"), (360, "dark")):
                    assert self.violations() == [], (name, width, scheme)

    def complaints(self) -> list[str]:
        """What the browser has logged: above all what the content security policy has refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browsing(pictures: Path) -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(20)
    try:
        yield Browser(driver, pictures)
    finally:
        driver.quit()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("WINDROW_SCREENSHOTS", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_an_open_page_follows_a_cluster_from_its_making_on(tmp_path: Path, pictures: Path) -> None:
    shell = Shell(tmp_path)
    manifest = tmp_path / "small.yaml"
    manifest.write_text(SMALL)
    site = ("emulate", "--state-dir", "site", "--preload", "small.yaml", "--time-scale", SPEED)
    with (
        shell.process(*site, until=[HARVESTER, CREDENTIALS]),
        shell.process("serve", "--state-dir", "manager", until=[MANAGER]),
        browsing(pictures) as browser,
    ):
        driver = browser.driver
        link = shell.windrow("dashboard", "--kubeconfig", MANAGER, "--no-open").strip()
        first = link.partition("/sign-in")[0]
        driver.get(link)
        browser.wait_for(lambda: "No clusters yet" in browser.text(), "the empty overview")
        driver.execute_script("window.isTheSamePage = true")

        shell.windrow("apply", "--kubeconfig", MANAGER, "-f", CREDENTIALS, "-f", "small.yaml")
        rows = lambda: driver.find_elements("css selector", "table.clusters tbody tr")  # noqa: E731
        browser.wait_for(rows, "the cluster in the list, without loading the page again")
        browser.look("overview-provisioning")
        browser.wait_for(
            lambda: driver.find_elements("css selector", "table.clusters .health.good"),
            "the cluster to be ready",
        )
        assert driver.execute_script("return window.isTheSamePage") is True

        driver.find_element("css selector", "table.clusters th a").click()
        browser.wait_for(lambda: "Timeline" in browser.text(), "the page of the cluster")
        assert len(driver.find_elements("css selector", ".hosts .box.good")) == 2
        browser.look("cluster-ready")
        for name, path in (
            ("activity", "/activity"),
            ("credentials", "/credentials"),
            ("drivers", "/node-drivers"),
        ):
            driver.get(first + path)
            browser.look(name)
        assert browser.complaints() == []


CLUSTER = "/clusters/fleet-default/orchard"


def _see_harvester(browser: Browser, first: str) -> None:
    """What is read on Harvester: by its credential, of the cluster, and of a machine with its console."""
    driver = browser.driver
    driver.get(f"{first}/harvesters")
    browser.click("tbody th a")
    browser.wait_for(lambda: "Address pools" in browser.text(), "the page of the Harvester")
    assert len(driver.find_elements("css selector", "section[aria-labelledby=hosts-title] .health.good")) == 3
    browser.look("harvester", TWO_LOOKS)
    driver.get(f"{first}{CLUSTER}/harvester")
    browser.wait_for(lambda: "Zones" in browser.text(), "the cluster on its Harvester")
    browser.look("placement", TWO_LOOKS)
    driver.get(f"{first}{CLUSTER}")
    browser.click(".machines .name")
    browser.wait_for(lambda: "Record" in browser.text(), "the page of the machine")
    browser.look("machine", TWO_LOOKS)
    browser.click("main a", "VM, disks and console")
    browser.wait_for(lambda: driver.find_elements("css selector", "pre.console"), "the console")
    browser.look("vm", TWO_LOOKS)


def test_a_cluster_is_seen_on_its_harvester(tmp_path: Path, pictures: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    site = ("emulate", "--state-dir", "site", "--preload", "small.yaml", "--time-scale", SPEED)
    with (
        shell.process(*site, until=[HARVESTER, CREDENTIALS]),
        shell.process("serve", "--state-dir", "manager", until=[MANAGER]),
        browsing(pictures) as browser,
    ):
        shell.windrow("apply", "--kubeconfig", MANAGER, "-f", CREDENTIALS, "-f", "small.yaml")
        link = shell.windrow("dashboard", "--kubeconfig", MANAGER, "--no-open").strip()
        first = link.partition("/sign-in")[0]
        browser.driver.get(link)
        browser.wait_for(lambda: browser.texts("table.clusters .health.good"), "the cluster to be ready")
        _see_harvester(browser, first)
        assert browser.complaints() == []


def test_a_page_without_its_manager_says_so_and_recovers(tmp_path: Path, pictures: Path) -> None:
    shell = Shell(tmp_path)
    serve = ("serve", "--state-dir", "manager")
    written = [MANAGER]
    with browsing(pictures) as browser:
        driver = browser.driver
        with shell.process(*serve, until=written):
            driver.get(shell.windrow("dashboard", "--kubeconfig", MANAGER, "--no-open").strip())
            browser.wait_for(lambda: "No clusters yet" in browser.text(), "the overview")
        banner = driver.find_element("id", "connection")
        browser.wait_for(lambda: "connection to the manager is lost" in banner.text, "the banner")
        browser.look("away")

        # A restart signs out: the page leads to the sign-in by itself, and a new link opens it again.
        with shell.process(*serve, until=written):
            browser.wait_for(lambda: "/sign-in" in driver.current_url, "the page that asks to sign in")
            browser.look("sign-in")
            driver.get(shell.windrow("dashboard", "--kubeconfig", MANAGER, "--no-open").strip())
            browser.wait_for(lambda: "No clusters yet" in browser.text(), "the overview again")
