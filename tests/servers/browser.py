"""A real browser for tests that look at pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

#: Long: the machine may be busy with a whole suite.
PATIENCE_MS = 300_000
WIDTH = 1100
_SPEAKS_WITH_NOBODY = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *_SPEAKS_WITH_NOBODY],
            timeout=PATIENCE_MS,
        )
        yield browser
        browser.close()


@contextmanager
def a_page() -> Iterator[Page]:
    """Start Chromium with one empty page, and end it."""
    with a_browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        yield page
