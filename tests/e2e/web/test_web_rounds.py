"""Rounds in the web console: over time, one of them, and one as theatre; in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

from controller.rest import create_app
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.e2e.web.conftest import PATIENCE_MS, Tab, a_tab
from tests.e2e.web.test_web_console import AXE, MARKUP
from tests.register import ON_ANY_DATABASE, a_cluster, add_request
from tests.servers.serving import served

pytestmark = ON_ANY_DATABASE


@pytest.fixture
def url(register: Registry, decider: PolicyProcess) -> Iterator[str]:
    """An API with two rounds behind it: one in which all find room, one in which not all do."""
    a_cluster(register, hosts=3)
    add_request(register, 4, name="web")
    add_request(register, 4, name="db", tenant="b")
    run_slot(register, decider, 1)
    add_request(register, 90, name="batch")
    run_slot(register, decider, 2)
    with served(create_app(register)) as url:
        yield url


def as_operator(tab: Tab, register: Registry) -> Tab:
    tab.log_in(a_token(register, None))
    return tab


def test_a_round_is_chosen_by_keyboard_and_watched_step_by_step(
    tab: Tab, register: Registry
) -> None:
    page = as_operator(tab, register).page
    tab.go("#/rounds", "Rounds")
    rounds = page.get_by_role("slider", name="Round")
    assert "round 2, by fuga, 22 placed, 68 not placed" in (
        rounds.get_attribute("aria-valuetext") or ""
    )
    rounds.press("ArrowLeft")
    page.get_by_role("heading", level=2, name="Round 1").wait_for()
    rounds.press("Enter")
    page.get_by_role("heading", level=1, name="Round 1").wait_for()
    page.get_by_role("link", name="Watch as theatre").press("Enter")

    page.get_by_text("the same bit for bit").wait_for()
    step = page.get_by_role("slider", name="Step")
    assert (step.get_attribute("aria-valuetext") or "").endswith("Before the round")
    step.press("ArrowRight")
    # One of the three hosts is kept empty while the others have room.
    page.get_by_text("2 hosts may take 8 VMs, solved exactly").wait_for()
    step.press("ArrowRight")
    first = page.get_by_role("listitem").and_(page.locator("[aria-current=true]"))
    page.get_by_role("heading", level=2, name="What h1 weighs").wait_for()
    assert "h1" in first.inner_text()
    assert "small" in first.inner_text()
    page.get_by_role("button", name="Last").press("Enter")
    stage = page.get_by_role("list", name="Hosts in the order in which they play")
    placed = sum(
        int(took.split()[1]) for took in stage.locator(".took").all_inner_texts() if "+" in took
    )
    assert placed == register.rounds.get(1).placed == 8
    page.get_by_role("button", name="First").press("Enter")
    page.get_by_label("Speed").select_option("fast")
    page.get_by_role("button", name="Play").press("Enter")

    page.get_by_role("button", name="Play").wait_for()  # it has come to its end
    assert step.input_value() == step.get_attribute("max")
    page.get_by_text("fuga rounds game 1").wait_for()
    page.get_by_text("By a call of the API").click()
    page.get_by_text("/v1/rounds/1/game?steps=").wait_for()
    assert tab.faults == []


def test_a_round_is_replayed_and_decided_by_another_policy_beside_it(
    tab: Tab, register: Registry
) -> None:
    page = as_operator(tab, register).page
    tab.go("#/rounds/2", "Round 2")

    page.get_by_role("button", name="Replay").click()
    page.get_by_text("Identical: decided by fuga").wait_for()
    page.get_by_label("Policy").select_option("first_fit")
    page.get_by_text("fuga replay 2 --policy first_fit").wait_for()
    page.get_by_role("button", name="Decide").click()

    compared = page.get_by_role("table").filter(has_text="VMs placed")
    compared.get_by_role("columnheader", name="first_fit").wait_for()
    compared.get_by_role("row", name="VMs placed 22 22").wait_for()
    assert len(register.rounds.list().items) == 2
    # Another call is already under way: in words, and what was found stays.
    page.route("**/replay", lambda route: route.fulfill(status=409, json={"detail": "others run"}))
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("alert").get_by_text("others run").wait_for()
    assert compared.is_visible()


def test_a_tenant_sees_its_own_share_over_time_and_no_theatre(
    tab: Tab, register: Registry, token_of_a: str
) -> None:
    tab.log_in(token_of_a, "#/rounds", "Rounds")

    tab.page.get_by_text("your dominant share").wait_for()
    for name in ("Placed", "Left out", "Fairness costs"):
        assert tab.page.get_by_role("columnheader", name=name).count() == 0
    tab.go("#/rounds/1", "Round 1")
    tab.page.get_by_text("fuga rounds show 1").wait_for()
    assert tab.page.get_by_role("link", name="Watch as theatre").count() == 0
    assert tab.page.get_by_role("button", name="Replay").count() == 0
    tab.go("#/rounds/1/game", "Round 1 as theatre")
    tab.page.get_by_role("alert").wait_for()
    assert not any("/policies" in each for each in tab.asked)


def test_theatre_fits_and_is_read_aloud_whatever_names_say(
    browser: Browser, url: str, register: Registry
) -> None:
    """Once computed, the answer is shown again in other sizes, with names that are markup."""
    token, answers = a_token(register, None), []

    def poisoned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: poisoned(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [poisoned(each, key) for each in value]
        named = key in ("name", "vm_type", "tenant", "differences") and isinstance(value, str)
        return value + MARKUP if named else value

    def answer(route: Route) -> None:
        if not answers:
            answers.append(route.fetch(timeout=PATIENCE_MS).json())
        route.fulfill(json={**poisoned(answers[0]), "identical": False, "differences": [MARKUP]})

    for width, theme in ((1440, "light"), (390, "dark")):
        size = {"width": width, "height": 900}
        with a_tab(browser, url, viewport=size, color_scheme=theme, reduced_motion="reduce") as tab:
            tab.page.route("**/game**", answer)
            tab.log_in(token)
            tab.page.evaluate(AXE.read_text())
            tab.go("#/rounds/2/game", "Round 2 as theatre")
            tab.page.get_by_role("slider", name="Step").press("ArrowRight")
            tab.page.get_by_role("slider", name="Step").press("ArrowRight")
            tab.page.get_by_role("heading", level=2, name="weighs").wait_for()
            found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            assert [
                (each["id"], [node["html"] for node in each["nodes"]])
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ] == []
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
            slow = "getComputedStyle(document.querySelector('.seg')).transitionDuration"
            assert tab.page.evaluate(slow) == "0s"
            assert tab.page.evaluate("window.ran") is None
            assert tab.page.locator("main img").count() == 0
            assert tab.page.get_by_text(MARKUP).count() > 0
            assert tab.faults == []
