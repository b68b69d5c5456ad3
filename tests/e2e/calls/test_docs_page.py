"""/docs in a real browser: a token is pasted, an operation called, and nobody else hears of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page

from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import Api, a_token
from tests.fakes.http_api import http_api
from tests.register import ON_ANY_DATABASE, add_request
from tests.servers.browser import PATIENCE_MS, WIDTH, a_browser
from tests.servers.serving import served


@dataclass(frozen=True)
class DocsPage:
    """The page as it is open, and all that it asked for and stumbled over."""

    url: str
    page: Page
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def authorise(self, token: str) -> None:
        self.page.click(".auth-wrapper button.authorize")
        self.page.fill(".dialog-ux input", token)
        self.page.click(".dialog-ux button.authorize")
        self.page.click(".dialog-ux button.btn-done")

    def execute(self, path: str) -> tuple[int, str]:
        """Call a GET; return the status and the body that the page shows.

        Of a long list the page has the operations in view alone; its filter shows others.
        """
        self.page.fill(".operation-filter-input", path)
        block = self.page.locator(f'.opblock-get:has([data-path="{path}"])')
        if not block.locator("button.execute").count():
            block.locator("button.opblock-summary-control").first.click()
            block.locator("button.try-out__btn").click()
        block.locator("button.execute").click()
        answer = block.locator(".live-responses-table tbody tr.response").first
        status = answer.locator(".response-col_status").inner_text()
        return int(status.split()[0]), answer.locator("pre.microlight").first.inner_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as browser:
        yield browser


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[DocsPage]:
    with browser.new_context(viewport={"width": WIDTH, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        found = DocsPage(url, page)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("pageerror", lambda error: found.faults.append(str(error)))
        page.on(
            "console", lambda said: found.faults.append(said.text) if said.type == "error" else None
        )
        page.goto(f"{url}/docs")
        page.wait_for_selector(".opblock")
        yield found


@pytest.fixture
def docs(browser: Browser, register: Registry) -> Iterator[DocsPage]:
    with served(create_app(register)) as url, opened(browser, url) as found:
        yield found


@ON_ANY_DATABASE
def test_a_pasted_token_lists_its_vms_and_is_kept_nowhere(docs: DocsPage, api: Api) -> None:
    add_request(api.registry, 2, name="web")
    token = a_token(api.registry, "a", "pasted")

    docs.authorise(token)
    status, body = docs.execute("/v1/vms")

    assert status == 200
    assert {each["name"] for each in json.loads(body)["items"]} == {"web-1", "web-2"}
    assert docs.faults == []
    assert {each for each in docs.asked if not each.startswith((docs.url + "/", "data:"))} == set()
    kept = "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]"
    assert not any(token in each for each in docs.page.evaluate(kept))


@ON_ANY_DATABASE
def test_without_a_token_the_page_shows_the_refusal(docs: DocsPage) -> None:
    status, body = docs.execute("/v1/vms")

    assert status == 401
    assert "unauthorized" in body


@ON_ANY_DATABASE
def test_what_runs_in_the_page_speaks_with_the_api_alone(docs: DocsPage) -> None:
    attempts = """async url => {
      const image = await new Promise(done => {
        const made = new Image();
        made.onload = () => done("loaded");
        made.onerror = () => done("refused");
        made.src = url + "/image";
      });
      const call = await fetch(url + "/call", {mode: "no-cors"})
        .then(() => "sent", () => "refused");
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      return [image, call, String(window.ran)];
    }"""
    with http_api() as elsewhere:
        found = docs.page.evaluate(attempts, elsewhere.url)

        assert found == ["refused", "refused", "undefined"]
        assert elsewhere.asked == []
