"""Take the pictures of the web console in docs/images, from a running `fuga up`.

Usage: python -m scripts.screenshots [FOLDER]     (make screenshots; FUGA_STATE_DIR as for fuga)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from controller.calling.credentials import FILE_NAME, Credentials, state_dir

#: Width and theme of each set of pictures.
SETS: Final = ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark"))
#: Name of the picture, whose token, where, and a link to follow from there.
VIEWS: Final = (
    ("overview", "a", "#/", None),
    ("vms", "a", "#/vms", None),
    ("vm", "a", "#/vms", "td a"),
    ("request", "a", "#/requests", "td a"),
    ("ask", "a", "#/ask", None),
    ("site", None, "#/", None),
    ("hosts", None, "#/hosts", None),
    ("round", None, "#/rounds", "td a"),
)
_SETTLES_MS: Final = 1_500


def main(arguments: list[str]) -> int:
    """Take them all."""
    folder = Path(arguments[0] if arguments else "docs/images")
    found = Credentials.load(state_dir(os.environ) / FILE_NAME)
    if found is None:
        print("screenshots: nothing runs here; start `fuga up` first", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for width, theme in SETS:
            for whose in ("a", None):
                page = _logged_in(browser, found, whose, width, theme)
                for name, of, where, link in VIEWS:
                    if of == whose:
                        _show(page, where, link)
                        path = folder / f"web-{name}-{width}-{theme}.png"
                        page.screenshot(path=path)
                        print(path)
                page.context.close()
        browser.close()
    return 0


def _logged_in(
    browser: Browser, found: Credentials, whose: str | None, width: int, theme: str
) -> Page:
    scheme = "dark" if theme == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(found.url + "/web/")
    page.get_by_label("Token").fill(found.operator if whose is None else found.tenants[whose])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("navigation", name="Views").wait_for()
    return page


def _show(page: Page, where: str, link: str | None) -> None:
    page.evaluate("where => { location.hash = where; }", where)
    if link is not None:
        page.locator(link).first.click()
    page.wait_for_timeout(_SETTLES_MS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
