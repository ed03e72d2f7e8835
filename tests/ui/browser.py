"""A real browser for tests: Debian's chromium, driven by Playwright; what it complains of is kept. Knows no page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_MS = 120_000
HURRY = "const real = setInterval; window.setInterval = (act, ms, ...rest) => real(act, ms / 20, ...rest);"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@contextmanager
def started() -> Iterator[Any]:
    """The browser. Skips the test where there is none."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install --editable '.[test]'"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Tab:
    """One page of a context of its own. `complaints`: console errors, uncaught errors, refusals by the content security policy.

    `hurried`: what the page does every few seconds it does so many times in a second, for tests that wait for that.
    """

    def __init__(self, browser: Any, base: str, token: str, *, hurried: bool = False, **options: Any) -> None:
        self.base, self.complaints = base, list[str]()
        self._context = browser.new_context(
            **{"viewport": DESKTOP, "permissions": ["clipboard-read", "clipboard-write"], **options}
        )
        self._context.set_default_timeout(PATIENCE_MS)
        if hurried:
            self._context.add_init_script(HURRY)
        if token:
            self._context.add_init_script(
                f"sessionStorage.getItem('gput-token') ?? sessionStorage.setItem('gput-token', '{token}')"
            )
        self.page = self._context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def open(self, place: str = "#/") -> Any:
        """The page at this fragment."""
        self.page.goto(f"{self.base}/ui/{place}")
        return self.page

    def shot(self, name: str) -> None:
        """A screenshot of the whole page, kept."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)

    def close(self) -> None:
        # A page asks on: whoever changes its answers may be in the middle of one when the test is over, and would fail in the next test
        if not self.page.is_closed():  # by the test itself
            self.page.unroute_all(behavior="ignoreErrors")
        self._context.close()
