"""A browser without a window: Debian's Chromium, driven by selenium, for tests and for the pictures of the pages."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

__all__ = ["Browser", "browser"]

_PATIENCE = 20.0
"""Seconds after which a page that does not load, or an element that does not appear, is an error."""


def _program(name: str, package: str) -> str:
    """Return the path of a program of Debian; skip the test without it, but never in CI."""
    found = shutil.which(name)
    if found is None and not os.environ.get("CI"):
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    assert found is not None, f"{name} is not installed: apt-get install {package}"
    return found


class Browser:
    """One window of Chromium. ``driver`` is selenium's, for all other operations."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Load a page; return when it is complete."""
        self.driver.get(url)

    def show(self, width: int, height: int, scale: float = 1.0) -> None:
        """Set the size of the page to *width* times *height* pixels of CSS, each of them *scale* dots wide."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self._tell("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Set ``prefers-color-scheme``."""
        self._tell("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def find(self, selector: str) -> Any:
        """Return the first element that a selector of CSS names."""
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str = "body") -> str:
        """Return the words that a reader sees there."""
        return str(self.find(selector).text)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the result of *script*, the body of a function of JavaScript."""
        return self.driver.execute_script(script, *arguments)

    def run_first(self, script: str) -> None:
        """Run *script* in every page that is opened from now on, before those of the page."""
        self._tell("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def complaints(self) -> list[str]:
        """Return the new errors and warnings of the console, violated policies included."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def picture(self, file: Path | None = None, *, whole: bool = False) -> bytes:
        """Return a PNG of the visible part or of the *whole* page, and write it to *file* if one is named."""
        options: dict[str, Any] = {"format": "png", "optimizeForSpeed": False, "captureBeyondViewport": whole}
        if whole:
            size = self._tell("Page.getLayoutMetrics", {})["cssContentSize"]
            options["clip"] = {**size, "scale": 1}
        taken = base64.b64decode(self._tell("Page.captureScreenshot", options)["data"])
        if file is not None:
            file.write_bytes(taken)
        return taken

    def _tell(self, command: str, arguments: dict[str, Any]) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)


@contextmanager
def browser(width: int = 1280, height: int = 800, *options: str) -> Iterator[Browser]:
    """Run a browser of its own, with a profile that nobody has used, for the length of the block.

    Args:
        width: That of the window, in pixels.
        height: That of the window.
        *options: Further options of Chromium's command line.
    """
    webdriver = pytest.importorskip("selenium.webdriver")
    chosen = webdriver.ChromeOptions()
    chosen.binary_location = _program("chromium", "chromium")
    wanted = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    for option in (*wanted, "--force-color-profile=srgb", f"--window-size={width},{height}", *options):
        chosen.add_argument(option)
    chosen.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=_program("chromedriver", "chromium-driver"))
    driver = webdriver.Chrome(options=chosen, service=service)
    try:
        driver.set_page_load_timeout(_PATIENCE)
        driver.set_script_timeout(_PATIENCE)
        yield Browser(driver)
    finally:
        driver.quit()
