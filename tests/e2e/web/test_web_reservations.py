"""Reservations in a browser: asked for, decided, drawn on by the form of requests, cancelled."""

from __future__ import annotations

from playwright.sync_api import Browser

from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.slots import run_slot
from tests.e2e.web.conftest import Tab, a_tab
from tests.integration.rounds.test_reservations import decide
from tests.register import ACTOR, add_host


def test_room_is_reserved_drawn_on_and_given_back(
    tab: Tab, token_of_a: str, register: Registry, decider: PolicyProcess
) -> None:
    [batch] = register.requests.list(name="batch").items
    register.requests.delete(batch.id, actor=ACTOR)  # what waits would have its room first
    add_host(register, "spare", vcpus=4, memory_mib=8192)
    tab.log_in(token_of_a, "#/reservations", "Reservations")
    tab.page.get_by_text("Reserve room").first.click()
    tab.page.get_by_label("How many").fill("2")
    tab.page.get_by_label("Hours").fill("1.5")
    tab.page.get_by_label("Name").last.fill("launch")
    tab.page.get_by_text("fuga reserve small -n 2 --for 90m --name launch").wait_for()
    tab.page.get_by_role("button", name="Reserve room").click()
    row = tab.page.get_by_role("row", name="launch")
    row.filter(has_text="not decided yet").wait_for()

    [requested] = register.reservations.list_pending()
    decide(register, requested)
    register.reservations.begin_and_end_due()
    row.filter(has_text="there will be room").wait_for()
    row.filter(has_text="in force").wait_for()

    tab.page.get_by_role("status").filter(has_text="launch is in force").wait_for()

    tab.go("#/ask", "Request VMs")
    tab.page.get_by_label("Reservation").select_option(label="launch: 2 left")
    tab.page.get_by_role("button", name="Request").click()
    tab.page.get_by_role("heading", level=1, name="req-").wait_for()
    run_slot(register, decider)
    assert register.reservations.get(requested.id).used == 1
    tab.page.get_by_text("It draws on the reservation launch").wait_for()
    tab.page.get_by_role("link", name="the reservation launch").click()
    tab.page.get_by_role("heading", level=1, name="launch").wait_for()
    tab.page.get_by_text("Room for 2 VMs of type small for tenant a").wait_for()
    tab.page.get_by_text("fuga reservation show launch").wait_for()

    tab.go("#/reservations", "Reservations")
    tab.page.get_by_role("checkbox", name="launch").check()
    tab.page.get_by_role("button", name="Give back").click()
    dialog = tab.page.get_by_role("dialog", name="Give back 1 reservation?")
    dialog.get_by_text("fuga reservation cancel launch").wait_for()
    dialog.get_by_role("button", name="Give back").click()
    tab.page.get_by_text("No reservations.").wait_for()
    tab.page.get_by_label("Show those that are over").check()
    row.filter(has_text="cancelled").wait_for()
    assert tab.faults == []


def test_a_beginning_is_of_the_readers_clock_and_refused_where_that_shows_it_never_or_twice(
    browser: Browser, url: str, token_of_a: str
) -> None:
    with a_tab(browser, url, timezone_id="America/New_York") as tab:
        tab.log_in(token_of_a, "#/reservations", "Reservations")
        tab.page.get_by_text("Reserve room").first.click()
        begins = tab.page.get_by_label("your clock, America/New_York")
        begins.fill("2027-03-14T02:30")
        tab.page.get_by_role("alert").filter(
            has_text="2027-03-14 02:30 does not exist in America/New_York: it may be"
        ).filter(has_text="GMT-5 or").wait_for()
        begins.fill("2027-11-07T01:30")
        tab.page.get_by_role("alert").filter(has_text="01:30 comes twice").wait_for()
        begins.fill("2027-11-07T02:30")
        tab.page.get_by_text("fuga reserve small -n 1 --from 2027-11-07T07:30Z").wait_for()
        assert tab.page.get_by_role("alert").count() == 0
