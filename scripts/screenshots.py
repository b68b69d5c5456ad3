"""Take the pictures of the web console in docs/images, from a running `fuga up` with real guests.

Usage: python -m scripts.screenshots [--folder FOLDER] [--width 1440] [--theme light] [--only map]

`make screenshots` takes them; FUGA_STATE_DIR names the cluster as for fuga. What they show is
requested first: tenants in groups, VMs of several types in a few rounds, some that wait, a plan
of moves. Asked for again, nothing is added.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from controller.session.credentials import FILE_NAME, Credentials, state_dir

WIDTH: Final = 1440
HEIGHT: Final = 900
PATIENCE_MS: Final = 300_000

#: Name, weight, group, and whether it is one itself.
TENANTS: Final = (
    ("science", 2, None, True),
    ("astronomy", 2, "science", False),
    ("climate", 1, "science", False),
    ("shop", 1, None, False),
)
#: Rounds, each of requests: tenant, name, VM type, VMs.
ROUNDS: Final = (
    (("astronomy", "survey", "small", 3), ("shop", "web", "tiny", 2)),
    (
        ("climate", "ocean", "medium", 1),
        ("shop", "db", "small", 1),
        ("astronomy", "notes", "tiny", 1),
    ),
    (("climate", "ice", "small", 2), ("astronomy", "catalogue", "large", 1)),
    (
        ("climate", "model", "xlarge", 2),
        ("astronomy", "lens", "large", 2),
        ("shop", "sale", "medium", 6),
    ),
)
TENANT: Final = "astronomy"
VM: Final = "survey-1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Take all screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--theme", default="light,dark")
    parser.add_argument("--only", default="", metavar="NAME,...", help="overview, say")
    given = parser.parse_args(arguments)
    found = Credentials.load(state_dir(os.environ) / FILE_NAME)
    if found is None or found.operator is None:
        print("screenshots: nothing runs here; start `fuga up` first", file=sys.stderr)
        return 1
    with open_api(found.url, found.operator) as api, open_browser() as browser:
        site = ScreenshotSite(api, found.url)
        site.populate()
        for theme in given.theme.split(","):
            for whose, views in ((TENANT, OF_TENANTS), (None, OF_OPERATORS)):
                page = open_logged_in(browser, found.url, site.token(whose), given.width, theme)
                for name, show in views:
                    if given.only and name not in given.only.split(","):
                        continue
                    show(page, site)
                    path = given.folder / f"web-{name}-{theme}.webp"
                    save(page.screenshot(), path)
                    print(f"{path}  {path.stat().st_size // 1024} KiB", flush=True)
                page.context.close()
    return 0


# ---- what is shown ---------------------------------------------------------------


@dataclass
class ScreenshotSite:
    """The cluster, by its API."""

    api: httpx.Client
    url: str

    def populate(self) -> None:
        """Request the VMs to be shown, once, and wait for them."""
        for name, weight, parent, is_group in TENANTS:
            body = {"name": name, "weight": weight, "parent": parent, "is_group": is_group}
            made = self.api.post("/v1/tenants", json=body)
            if made.status_code not in {201, 409}:
                made.raise_for_status()
        known = {(each["tenant"], each["name"]) for each in self.items("requests")}
        for requests in ROUNDS:
            missing = [each for each in requests if (each[0], each[1]) not in known]
            for tenant, name, vm_type, count in missing:
                body = {"tenant": tenant, "name": name, "vm_type": vm_type, "count": count}
                self.api.post("/v1/requests", json=body).raise_for_status()
            if missing:
                before = self.round()
                self.wait_for_round_after(before)
        wait_until(lambda: self.observed(VM) == "running")
        hosts = self.items("hosts")
        for place, host in enumerate(hosts):
            labels = {"labels": [f"zone={'east' if place % 2 else 'west'}"]}
            self.api.patch(f"/v1/hosts/{host['name']}", json=labels).raise_for_status()
        if not self.plan():
            emptiest = min(hosts, key=lambda host: committed_memory_mib(host) or 1 << 60)
            body = {"kind": "evacuate", "hosts": [emptiest["name"]]}
            self.api.post("/v1/plans", json=body).raise_for_status()
        wait_until(self.plan)

    def plan(self) -> dict[str, Any] | None:
        """Return a plan that waits for approval and moves something."""
        return next((each for each in self.items("plans", state="proposed") if each["moves"]), None)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return the first rows of a list."""
        answer = self.api.get(f"/v1/{path}", params={"limit": 100, **query})
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def round(self) -> int:
        """Return the number of the last round."""
        return int(self.api.get("/v1/status").json()["last_round"] or 0)

    def wait_for_round_after(self, number: int) -> None:
        """Wait for a round after one of this number."""
        wait_until(lambda: self.round() > number)

    def vm(self, name: str) -> dict[str, Any]:
        """Return a VM."""
        return self.items("vms", name=name, tenant=TENANT)[0]

    def observed(self, name: str) -> str:
        """Return what a VM does."""
        return str(self.vm(name)["observed"])

    def token(self, tenant: str | None) -> str:
        """Return a token for an hour."""
        role = "operator" if tenant is None else "tenant"
        name = f"pictures-{time.time_ns()}"
        body = {"role": role, "tenant": tenant, "name": name, "ttl_s": 3600}
        answer = self.api.post("/v1/tokens", json=body)
        answer.raise_for_status()
        return str(answer.json()["secret"])


# ---- the views -------------------------------------------------------------------


def page_at(where: str) -> Callable[[Page, ScreenshotSite], None]:
    """Show a view as it opens."""

    def show(page: Page, _site: ScreenshotSite) -> None:
        open_view(page, where)

    return show


def show_form(page: Page, _site: ScreenshotSite) -> None:
    """Show the form that requests VMs, filled in."""
    open_view(page, "#/ask")
    page.get_by_label("Type").select_option("medium")
    page.get_by_label("How many").fill("12")
    page.get_by_label("Name").first.fill("transit")
    page.get_by_label("Labels").fill("team=exoplanets")
    page.locator(".message[role=status]", has_text="fit").first.wait_for()
    page.wait_for_timeout(500)


def show_console(page: Page, site: ScreenshotSite) -> None:
    """Show a VM whose guest was just queried."""
    open_view(page, f"#/vms/{site.vm(VM)['id']}")
    page.get_by_role("button", name="Open the console").click()
    screen = page.locator(".xterm-accessibility-tree")
    screen.get_by_text("LAB-GUEST-BEAT").first.wait_for()
    page.keyboard.type("is anybody there?\n")
    screen.get_by_text("LAB-GUEST-HEARD").first.wait_for()
    page.locator(".guest-terminal").evaluate("place => place.scrollIntoView({block: 'end'})")
    page.mouse.wheel(0, 120)
    page.wait_for_timeout(500)


def show_host(page: Page, site: ScreenshotSite) -> None:
    """Show the host that holds most."""
    fullest = max(site.items("hosts"), key=committed_memory_mib)
    open_view(page, f"#/hosts/{fullest['name']}")


def show_map(page: Page, _site: ScreenshotSite) -> None:
    """Show all hosts."""
    open_view(page, "#/map")
    page.get_by_role("img", name="squares").wait_for()
    page.get_by_label("Group by").select_option(label="label zone")
    page.wait_for_timeout(300)


def show_plan(page: Page, site: ScreenshotSite) -> None:
    """Show what the proposed plan would do."""
    open_view(page, f"#/plans/{(site.plan() or {})['id']}")


def show_theatre(page: Page, site: ScreenshotSite) -> None:
    """Show a round with more than found room, where a host weighs most."""
    rounds = site.items("rounds")
    best = max(rounds, key=lambda each: (min(each["placed"] or 0, 3), each["left_out"] or 0))
    open_view(page, f"#/rounds/{best['number']}/game")
    step = page.get_by_role("slider", name="Step")
    weighed = []
    for _ in range(int(step.get_attribute("max") or 0)):
        step.press("ArrowRight")
        weighed.append(page.locator(".weighed li").count())
    step.press("Home")
    for _ in range(weighed.index(max(weighed)) + 1):
        step.press("ArrowRight")
    page.wait_for_timeout(800)  # bars slide


OF_TENANTS: Final = (("overview", page_at("#/")), ("request", show_form), ("vm", show_console))
OF_OPERATORS: Final = (
    ("map", show_map),
    ("host", show_host),
    ("plan", show_plan),
    ("tenants", page_at("#/tenants")),
    ("rounds", page_at("#/rounds")),
    ("theatre", show_theatre),
)


# ---- how -------------------------------------------------------------------------


@contextmanager
def open_api(url: str, token: str) -> Iterator[httpx.Client]:
    """Call the API as the operator."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as api:
        yield api


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium for the length of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-lcd-text"],
        )
        yield browser
        browser.close()


def open_logged_in(browser: Browser, url: str, token: str, width: int, theme: str) -> Page:
    """Open the console in a tab of its own."""
    page = browser.new_page(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url + "/web/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("navigation", name="Views").wait_for()
    return page


def open_view(page: Page, where: str) -> None:
    """Open a view, and wait until it has read what it shows."""
    page.evaluate("where => { location.hash = where; scrollTo(0, 0); }", where)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(300)  # what it reads has begun
    expect(page.locator("main .loading")).to_have_count(0, timeout=PATIENCE_MS)
    page.wait_for_timeout(300)


def save(picture: bytes, path: Path) -> None:
    """Write a picture as WebP without loss: half the bytes of a PNG."""
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, lossless=True, quality=100, method=6)


def committed_memory_mib(host: dict[str, Any]) -> int:
    """Return how much memory of a host is committed, in MiB."""
    [memory] = (each for each in host["inventories"] if each["resource"] == "memory_mib")
    return int(memory["committed"])


def wait_until(look: Callable[[], object]) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit("screenshots: the cluster did not come to what is to be shown")
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
