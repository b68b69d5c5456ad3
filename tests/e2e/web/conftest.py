"""The web console in a real browser, before a real API with a round behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from controller.rest import create_app
from controller.rest.pages.web import is_built
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.register import a_cluster, add_request, run_vm
from tests.servers.browser import a_browser
from tests.servers.serving import served

#: Long: the machine may be busy with a whole suite.
PATIENCE_MS = 120_000


@dataclass
class Tab:
    """One tab with the page, and all that it asked for and stumbled over."""

    url: str
    page: Page
    context: BrowserContext
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def log_in(self, token: str, *view: str) -> None:
        """Log in; go to a view, given its address and heading."""
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("navigation", name="Views").wait_for()
        if view:
            self.go(*view)

    def go(self, where: str, heading: str) -> None:
        self.page.evaluate("where => { location.hash = where; }", where)
        self.page.get_by_role("heading", level=1, name=heading).wait_for()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not is_built():
        pytest.fail("the web console is not built; scripts/build-web says what is missing")
    with a_browser() as browser:
        yield browser


@pytest.fixture
def url(register: Registry, decider: PolicyProcess) -> Iterator[str]:
    """An API with tenants a and b: web of a runs, most of batch waits for room."""
    a_cluster(register)
    add_request(register, 1, name="web", labels={"tier": "front"})
    add_request(register, 60, name="batch")
    run_slot(register, decider)
    (web,) = register.vms.list(name="web-1").items
    assert web.assignment_id is not None
    run_vm(register, web.assignment_id)
    with served(create_app(register)) as url:
        yield url


def _note(tab: Tab, said: ConsoleMessage) -> None:
    # Networks of other tests' hosts come and go beside this; the page asks again.
    if said.type == "error" and "ERR_NETWORK_CHANGED" not in said.text:
        tab.faults.append(said.text)


@contextmanager
def a_tab(browser: Browser, url: str, *, at: str = "/", **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        found = Tab(url, page, context)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("pageerror", lambda error: found.faults.append(str(error)))
        page.on("console", lambda said: _note(found, said))
        page.goto(url + at)
        yield found
    finally:
        for page in context.pages:  # what is still on its way would fail in the next test
            page.unroute_all(behavior="ignoreErrors")
        context.close()


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[Tab]:
    with a_tab(browser, url) as found:
        yield found


@pytest.fixture
def token_of_a(register: Registry, url: str) -> str:
    return a_token(register, "a")
