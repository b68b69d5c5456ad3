"""Logging in to the web console, in Chromium: by a one-time link."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser

from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import Tab, a_tab
from tests.register import ON_ANY_DATABASE

pytestmark = ON_ANY_DATABASE

#: All that the tab and the browser keep.
KEPT = "[document.cookie, JSON.stringify(localStorage), name, location.href, document.referrer]"


def a_code(registry: Registry, secret: str) -> str:
    token = registry.tokens.authenticate(secret)
    assert token is not None
    return registry.logins.make_link(token.id, actor="test")[1]


def told_nowhere(tab: Tab, *secrets: str) -> bool:
    seen = [*tab.asked, *tab.page.evaluate(KEPT)]
    return not any(secret in each for secret in secrets for each in seen)


def test_a_link_logs_in_once_and_leaves_nothing_in_address_history_or_lasting_storage(
    browser: Browser, url: str, register: Registry, token_of_a: str, capfd: Any
) -> None:
    code = a_code(register, token_of_a)

    with a_tab(browser, url, at=f"/web/#login={code}") as tab:
        tab.page.get_by_role("heading", level=1, name="Tenant a").wait_for()
        assert tab.page.url == f"{url}/web/#/"
        token = tab.page.evaluate("sessionStorage.getItem('fuga.token')")
        assert token is not None
        assert token != token_of_a
        assert told_nowhere(tab, code, token)
        tab.page.reload()
        tab.page.get_by_role("heading", level=1, name="Tenant a").wait_for()
        tab.go("#/vms", "VMs")
        tab.page.go_back()
        tab.page.get_by_role("heading", level=1, name="Tenant a").wait_for()
        assert tab.page.url == f"{url}/web/#/"
        assert tab.faults == []

        tab.page.get_by_role("button", name="Log out").click()
        tab.page.get_by_text("You are logged out.").wait_for()
        for _ in range(100):
            if register.tokens.authenticate(token) is None:
                break
            tab.page.wait_for_timeout(100)
        assert register.tokens.authenticate(token) is None, "who logs out ends the login"

    logged = capfd.readouterr()
    assert code not in logged.out + logged.err
    assert token not in logged.out + logged.err
    with a_tab(browser, url, at=f"/web/#login={code}") as tab:
        tab.page.get_by_text("this link was used, is over, or never was one").wait_for()
        tab.page.get_by_role("heading", name="Log in to fuga").wait_for()
        assert tab.page.evaluate("sessionStorage.length") == 0


def test_a_link_that_is_opened_in_a_tab_with_the_page_takes_it_over(
    tab: Tab, register: Registry, token_of_a: str
) -> None:
    tab.log_in(token_of_a)
    tab.go("#/vms", "VMs")
    code = a_code(register, a_token(register, None, "ops"))

    tab.page.goto(f"{tab.url}/web/#login={code}")

    tab.page.get_by_role("heading", level=1, name="The whole site").wait_for()
    assert tab.page.url == f"{tab.url}/web/#/"
    assert told_nowhere(tab, code)
    tab.page.goto(f"{tab.url}/web/#login={code}")
    tab.page.get_by_role("heading", level=1, name="The whole site").wait_for()
    assert register.tokens.authenticate(token_of_a) is not None
