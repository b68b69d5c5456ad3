"""The web console as a person uses it: in Chromium, before a real API."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from controller.rest.pages.web import BUILT
from registry import Registry
from registry.networks import NetworkSource
from registry.requests import MembershipRule, Rules
from tests.docs.markdown import ROOT
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import PATIENCE_MS, Tab, a_tab
from tests.integration.registry.test_images import add_image
from tests.register import ACTOR, ON_ANY_DATABASE, add_request

pytestmark = ON_ANY_DATABASE
PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA7uF4XyqNNBPj6VGSSNb2dgnWPkvEIdnUUvnrOnUHDX laptop"
)
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
TENANTS_VIEWS = (
    ("#/", "Tenant a"),
    ("#/vms", "VMs"),
    ("#/requests", "Requests"),
    ("#/ask", "Request VMs"),
    ("#/rounds", "Rounds"),
    ("#/rounds/1", "Round 1"),
    ("#/keys", "SSH keys"),
    ("#/images", "Images"),
    ("#/networks", "Networks"),
    ("#/reservations", "Reservations"),
    ("#/groups", "VM groups"),
    ("#/events", "Events"),
    ("#/token", "Your token"),
)
OPERATORS_VIEWS = (
    ("#/", "The whole site"),
    ("#/hosts", "Hosts"),
    ("#/images", "Images"),
    ("#/token", "Tokens"),
)
MARKUP = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'


def test_a_token_shows_what_is_the_tenants_and_is_kept_in_the_tab_alone(
    tab: Tab, token_of_a: str
) -> None:
    tab.log_in(token_of_a, "#/vms", "VMs")
    tab.page.get_by_role("link", name="web-1").click()
    tab.page.get_by_role("heading", level=1, name="web-1").wait_for()
    tab.page.get_by_text("in the game of round 1").wait_for()

    assert tab.page.url.startswith(f"{tab.url}/web/#/vms/")
    assert tab.faults == []
    assert {each for each in tab.asked if not each.startswith(tab.url + "/")} == set()
    assert not any(token_of_a in each for each in [*tab.asked, tab.page.url])
    outlives = "[document.cookie, JSON.stringify(localStorage), name]"
    assert not any(token_of_a in each for each in tab.page.evaluate(outlives))
    assert tab.context.new_page().goto(tab.url + "/web/") is not None
    other = tab.context.pages[-1]
    other.get_by_role("heading", name="Log in to fuga").wait_for()
    assert other.evaluate("sessionStorage.length") == 0


def test_a_request_is_made_while_the_api_goes_away_and_nothing_typed_is_lost(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    tab.log_in(token_of_a, "#/ask", "Request VMs")
    tab.page.get_by_label("How many").fill("2")
    tab.page.get_by_label("Name").fill("late")
    tab.page.get_by_text(re.compile("fits? now|fit; the others")).first.wait_for()
    tab.page.route("**/v1/requests", lambda route: route.abort())
    tab.page.get_by_role("button", name="Request", exact=True).click()
    tab.page.get_by_role("alert").get_by_text("The API does not answer").wait_for()

    tab.page.unroute("**/v1/requests")
    assert tab.page.get_by_label("Name").input_value() == "late"
    tab.page.get_by_role("button", name="Send again").click()

    tab.page.get_by_role("heading", level=1, name="late").wait_for()
    (made,) = register.requests.list(name="late").items
    assert (made.count, made.tenant) == (2, "a")


def test_an_elastic_request_is_made_with_a_range_and_scaled(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    tab.log_in(token_of_a, "#/ask", "Request VMs")
    tab.page.get_by_label("How many").fill("2")
    tab.page.get_by_label("At most").fill("5")
    tab.page.get_by_label("Name").fill("sweep")
    tab.page.get_by_text("fuga request small -n 2..5 --name sweep").wait_for()
    tab.page.get_by_role("button", name="Request", exact=True).click()
    tab.page.get_by_text("2..5 VMs of type small for tenant a").wait_for()

    tab.page.get_by_role("button", name="Scale").click()
    dialog = tab.page.get_by_role("dialog", name="Scale sweep?")
    dialog.get_by_label("How many").fill("1")
    dialog.get_by_label("At most").fill("3")
    dialog.get_by_text("fuga scale sweep -n 1..3").wait_for()
    dialog.get_by_role("button", name="Scale").click()

    tab.page.get_by_text("1..3 VMs of type small for tenant a").wait_for()
    (made,) = register.requests.list(name="sweep").items
    assert (made.count, made.max_count) == (1, 3)
    tab.go("#/requests", "Requests")
    tab.page.get_by_role("row", name="sweep").get_by_text("0 of 1..3").wait_for()
    assert tab.faults == []


def test_a_token_that_ends_is_asked_for_over_the_form_that_waits(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    tab.log_in(token_of_a, "#/ask", "Request VMs")
    tab.page.get_by_label("Name").fill("kept")
    (token,) = (each for each in register.tokens.list().items if each.tenant == "a")
    register.tokens.revoke(token.id, actor="test")

    tab.page.get_by_text("Your token is no longer valid").wait_for()
    assert tab.page.evaluate("sessionStorage.length") == 0
    tab.page.get_by_label("Token").fill(a_token(register, "a", "next"))
    tab.page.get_by_role("button", name="Log in").click()

    tab.page.get_by_text("Your token is no longer valid").wait_for(state="hidden")
    assert tab.page.get_by_label("Name").input_value() == "kept"


def test_vms_are_chosen_and_deleted_by_keyboard_after_a_question(
    tab: Tab, token_of_a: str, register: Registry
) -> None:
    tab.log_in(token_of_a, "#/vms", "VMs")
    tab.page.get_by_role("searchbox").fill("web-1")
    tab.page.get_by_role("checkbox", name="Choose web-1").press("Space")
    tab.page.get_by_role("button", name="Delete").press("Enter")
    dialog = tab.page.get_by_role("dialog", name="Delete 1 VM?")
    dialog.wait_for()
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    expect(tab.page.get_by_role("button", name="Delete")).to_be_focused(timeout=PATIENCE_MS)
    assert register.vms.list(name="web-1").items[0].desired == "running"

    tab.page.get_by_role("button", name="Delete").press("Enter")
    dialog.get_by_role("button", name="Delete").press("Enter")

    tab.page.get_by_text("deleting").wait_for()
    assert register.vms.list(name="web-1").items[0].desired == "deleted"


def test_a_read_only_token_sees_and_is_offered_nothing_to_change(
    tab: Tab, register: Registry
) -> None:
    _, secret = register.tokens.create("tenant", "a", "eyes", actor="test", read_only=True)
    tab.log_in(secret, "#/vms", "VMs")
    tab.page.get_by_role("link", name="web-1").click()
    tab.page.get_by_role("heading", level=1, name="web-1").wait_for()

    assert tab.page.get_by_text("a, read-only").count() == 1
    for name in ("Delete", "Stop", "Reboot", "Request VMs"):
        assert tab.page.get_by_role("button", name=name).count() == 0


def test_no_string_becomes_markup(tab: Tab, token_of_a: str, register: Registry) -> None:
    register.ssh_keys.add("laptop", PUBLIC_KEY, tenant="a", actor=ACTOR)
    register.networks.add("lan", default=NetworkSource(kind="network", name="lan"), actor=ACTOR)
    apart = Rules(anti_affinity=MembershipRule(group="apart"))
    add_request(register, 1, name="lone", rules=apart)
    add_image(register, "debian")
    listed = {"#/keys": "laptop", "#/images": "debian", "#/networks": "lan", "#/groups": "apart"}

    def poisoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poisoned(each) for key, each in value.items()}
        if isinstance(value, list):
            return [poisoned(each) for each in value]
        kept = ("running", "placed", "active", "pending", "partly_placed", "tenant")
        return value + MARKUP if isinstance(value, str) and value not in kept else value

    def poison(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        changed = poisoned(body)
        for row, sound in zip(
            changed.get("items", [changed]), body.get("items", [body]), strict=True
        ):
            row |= {
                key: sound[key] for key in sound if key in ("id", "number") or key.endswith("_at")
            }
        route.fulfill(response=answer, json=changed)

    tab.log_in(token_of_a)
    tab.page.route("**/v1/**", poison)
    for where, _ in reversed(TENANTS_VIEWS):  # the first is open already
        tab.page.evaluate("where => { location.hash = where; }", where)
        row = tab.page.locator("tbody tr", has_text=f"{listed.get(where, '')}{MARKUP}")
        shown = row if where in listed else tab.page.get_by_text(MARKUP)
        shown.first.wait_for(state="attached")

    assert tab.page.evaluate("window.ran") is None
    assert tab.page.locator("img").count() == 0


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_views_fit_and_axe_finds_nothing_serious(
    browser: Browser, url: str, register: Registry, token_of_a: str, width: int, theme: Any
) -> None:
    found = []
    of_tenants = (token_of_a, TENANTS_VIEWS)
    of_operators = (a_token(register, None), OPERATORS_VIEWS)
    for token, views in (of_tenants, of_operators):
        size = {"width": width, "height": 900}
        with a_tab(browser, url, viewport=size, color_scheme=theme) as tab:
            tab.log_in(token)
            tab.page.evaluate(AXE.read_text())
            for where, heading in views:
                tab.go(where, heading)
                expect(tab.page.locator(".loading")).to_have_count(0, timeout=PATIENCE_MS)
                shown = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
                found += [
                    (where, each["id"], [node["html"] for node in each["nodes"]])
                    for each in shown["violations"]
                    if each["impact"] in ("serious", "critical")
                ]
                assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, where
            assert tab.faults == []

    assert found == []


def test_views_are_chosen_from_a_menu_where_there_is_no_room_for_a_row(
    browser: Browser, url: str, register: Registry
) -> None:
    with a_tab(browser, url, viewport={"width": 390, "height": 844}) as tab:
        tab.log_in(a_token(register, None))
        views = tab.page.get_by_role("navigation", name="Views")
        links = views.get_by_role("link")
        menu = views.get_by_role("button")
        expect(menu).to_have_text("☰ Overview")
        expect(links).to_have_count(0)
        menu.press("Enter")
        expect(links).to_have_count(19)
        tab.page.keyboard.press("Escape")
        expect(links).to_have_count(0)

        menu.press("Enter")
        views.get_by_role("link", name="Hosts").press("Enter")

        tab.page.get_by_role("heading", level=1, name="Hosts").wait_for()
        expect(links).to_have_count(0)
        expect(tab.page).to_have_title("Hosts · fuga")
        one_line = menu.bounding_box()
        tab.go("#/reservations", "Reservations")
        expect(menu).to_have_text("☰ Reservations")  # the longest of them
        longest = menu.bounding_box()
        assert one_line is not None
        assert longest is not None
        assert longest["height"] == one_line["height"]
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert tab.faults == []


def test_an_answer_that_breaks_off_or_is_refused_for_now_is_asked_for_again(
    tab: Tab, token_of_a: str
) -> None:
    tab.log_in(token_of_a)
    answers = iter(({"status": 200, "body": '{"items": ['}, {"status": 429, "json": {}}))

    def spoil(route: Route) -> None:
        spoilt: Any = next(answers, None)
        if spoilt is None:
            route.continue_()
        else:
            route.fulfill(headers={"Retry-After": "1"}, **spoilt)

    tab.page.route("**/v1/vms?**", spoil)
    tab.go("#/vms", "VMs")
    tab.page.get_by_role("link", name="web-1").wait_for(timeout=50_000)  # no event, not a minute

    assert [each for each in tab.faults if "Failed to load resource" not in each] == []


def test_browsers_are_sent_to_the_page_and_programs_get_their_problem(url: str) -> None:
    seen = httpx.get(f"{url}/", headers={"Accept": "text/html,*/*;q=0.8"}, follow_redirects=True)
    refused = httpx.get(f"{url}/", headers={"Accept": "application/json"})

    assert (str(seen.url), seen.status_code) == (f"{url}/web/", 200)
    assert (refused.status_code, refused.json()["code"]) == (404, "no_such_path")


def test_the_page_runs_its_own_files_alone_and_only_named_ones_are_kept(url: str) -> None:
    page = httpx.get(f"{url}/web/")
    (script,) = (each.name for each in (BUILT / "assets").glob("index-*.js"))
    asset = httpx.get(f"{url}/web/assets/{script}")

    policy = dict(
        each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-cache"
    assert "immutable" in asset.headers["cache-control"]
    assert "<script>" not in page.text
    assert "style=" not in page.text
