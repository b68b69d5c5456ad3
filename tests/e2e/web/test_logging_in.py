"""Logging in to the web console, in Chromium: by a one-time link, and at a real provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog

from controller.rest import create_app
from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import Tab, a_tab
from tests.register import ON_ANY_DATABASE, add_tenant
from tests.servers.provider import PASSWORD, provider_at
from tests.servers.serving import served

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


def test_a_link_that_is_opened_in_a_tab_with_the_page_asks_and_takes_it_over(
    tab: Tab, register: Registry, token_of_a: str
) -> None:
    tab.log_in(token_of_a, "#/vms", "VMs")
    code = a_code(register, a_token(register, None, "ops"))
    requested: list[str] = []

    def answer(dialog: Dialog) -> None:
        requested.append(dialog.message)
        dialog.dismiss() if len(requested) == 1 else dialog.accept()

    tab.page.on("dialog", answer)
    tab.page.goto(f"{tab.url}/web/#login={code}")
    tab.page.get_by_role("heading", level=1, name="Tenant a").wait_for()
    assert requested == ["This link logs this tab in again, as whoever made the link. Go on?"]
    assert tab.page.evaluate("sessionStorage.getItem('fuga.token')") == token_of_a

    tab.page.goto(f"{tab.url}/web/#login={code}")

    tab.page.get_by_role("heading", level=1, name="The whole site").wait_for()
    assert len(requested) == 2
    assert tab.page.url == f"{tab.url}/web/#/"
    assert told_nowhere(tab, code)
    tab.page.goto(f"{tab.url}/web/#login={code}")
    tab.page.get_by_role("heading", level=1, name="The whole site").wait_for()
    assert register.tokens.authenticate(token_of_a) is not None


# ---- at a provider ----------------------------------------------------------


@pytest.fixture
def site(register: Registry, issuer: str) -> Iterator[str]:
    """An API with the provider and tenant a."""
    add_tenant(register, "a")
    with served(create_app(register, provider=provider_at(issuer))) as url:
        yield url


def sign_in(tab: Tab, issuer: str, user: str) -> None:
    """Go to the provider from the console, and come back."""
    tab.page.get_by_role("button", name=f"Log in at {issuer.split('/')[2]}").click()
    tab.page.get_by_role("heading", name="Provider").wait_for()
    assert tab.page.url.startswith(issuer.removesuffix("/o") + "/")
    tab.page.get_by_label("Username").fill(user)
    tab.page.get_by_label("Password").fill(PASSWORD)
    tab.page.get_by_role("button", name="Sign in").click()


def test_who_signs_in_at_the_provider_comes_back_to_his_tenant_and_view(
    browser: Browser, site: str, issuer: str, register: Registry, capfd: Any
) -> None:
    with a_tab(browser, site, at="/web/#/vms") as tab:
        sign_in(tab, issuer, "anna")
        tab.page.get_by_role("heading", level=1, name="VMs").wait_for()
        assert tab.page.url == f"{site}/web/#/vms"
        assert tab.page.get_by_text("a", exact=True).count() == 1
        token = tab.page.evaluate("sessionStorage.getItem('fuga.token')")
        assert told_nowhere(tab, token)
        assert tab.page.evaluate("sessionStorage.length") == 1, "what began the login is gone"
        codes = {each.split("code=")[1].split("&")[0] for each in tab.asked if "?code=" in each}
        assert len(codes) == 1
        assert tab.faults == []

        tab.page.reload()
        tab.page.get_by_role("heading", level=1, name="VMs").wait_for()
        tab.page.get_by_role("button", name="Log out").click()
        tab.page.get_by_text("You are logged out.").wait_for()

    logged = capfd.readouterr()
    for secret in (*codes, token):
        assert secret not in logged.out + logged.err


def test_an_answer_that_did_not_begin_here_and_a_user_without_a_rule_are_refused(
    browser: Browser, site: str, issuer: str, register: Registry
) -> None:
    with a_tab(browser, site, at="/web/?code=stolen&state=anothers") as tab:
        tab.page.get_by_text("of no login that began in this tab").wait_for()
        assert tab.page.url == f"{site}/web/#/"
        assert not any(each.endswith("/v1/login") and "stolen" in each for each in tab.asked)

        sign_in(tab, issuer, "eve")
        tab.page.get_by_text("the provider knows you, but no rule").wait_for()
        assert tab.page.url == f"{site}/web/#/"
        assert tab.page.evaluate("sessionStorage.length") == 0
    assert [each for each in register.tokens.list().items if each.login] == []
