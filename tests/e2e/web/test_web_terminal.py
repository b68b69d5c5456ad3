"""A VM's console in the browser: typed into, left, lost, and written to by a hostile guest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from controller.rest import create_app
from controller.rounds.policy_process import PolicyProcess
from registry import Registry
from tests.e2e.conftest import a_token
from tests.e2e.slots import run_slot
from tests.e2e.web.conftest import PATIENCE_MS, Tab, a_tab
from tests.e2e.web.test_web_console import AXE
from tests.integration.workers.test_console_sessions import Workers
from tests.integration.workers.world import OneHost, World, eventually
from tests.register import ON_ANY_DATABASE, add_request
from tests.servers.serving import served
from workers.console_threads import ConsoleThreads

pytestmark = ON_ANY_DATABASE

HOSTILE = (
    "\x1b]0;pwned\x07\x1b]2;pwned\x07\x1b]52;c;cHduZWQ=\x07\x1b]8;;https://evil.example/\x07link"
    "\x1b]8;;\x07\x1b[8;5;5t\x1b[21t\x1b]10;?\x07\x1b[38;2;255;10;10mred\x1b[0m"
    "<img src=x onerror=window.ran=1>"
)
PASTE = """text => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  document.activeElement.dispatchEvent(new ClipboardEvent("paste", {clipboardData, bubbles: true}));
}"""


@dataclass
class Guest:
    """A VM whose guest answers each line, and a worker that holds its console."""

    world: World
    vm_id: UUID
    url: str
    token: str


@pytest.fixture
def guest(register: Registry, decider: PolicyProcess) -> Iterator[Guest]:
    world = World(register)
    add_request(register)
    run_slot(register, decider)
    [vm] = register.vms.list().items
    assert vm.assignment_id is not None
    world.build(vm.assignment_id)
    context = world.worker()
    threads = ConsoleThreads(OneHost(world.host), limit=4)
    queue = Workers(dataclasses.replace(context, consoles=threads))
    try:
        with served(create_app(register, queue=queue)) as url:
            yield Guest(world, vm.id, url, a_token(register, "a"))
    finally:
        context.stopping.set()
        threads.join(within_s=60)


@pytest.fixture
def tab(browser: Browser, guest: Guest) -> Iterator[Tab]:
    with a_tab(browser, guest.url) as found:
        found.page.set_default_timeout(PATIENCE_MS)
        found.log_in(guest.token)
        vm = guest.world.registry.vms.get(guest.vm_id)
        found.go(f"#/vms/{vm.id}", vm.name)
        yield found


def open_console(page: Page) -> None:
    page.get_by_role("button", name="Open the console").press("Enter")
    said(page, "[fuga: attached]")


def said(page: Page, words: str) -> None:
    """Wait until the terminal shows these words."""
    page.locator(".xterm-accessibility-tree").get_by_text(words).first.wait_for()


def test_what_is_typed_reaches_the_guest_and_ctrl_bracket_leaves_by_keyboard_alone(
    tab: Tab, guest: Guest
) -> None:
    open_console(tab.page)
    tab.page.keyboard.type("is anybody there?")
    tab.page.keyboard.press("Enter")
    said(tab.page, "LAB-GUEST-HEARD is anybody there?")
    assert guest.world.host.held_console == str(guest.vm_id)

    tab.page.keyboard.press("Tab")  # the guest's, not the page's
    tab.page.keyboard.press("Control+]")

    tab.page.get_by_role("button", name="Open the console").wait_for()
    assert tab.page.evaluate("document.activeElement.textContent") == "Open the console"
    eventually(lambda: guest.world.host.held_console is None)
    assert tab.faults == []


def test_an_open_console_fits_a_telephone_and_axe_finds_nothing_serious(tab: Tab) -> None:
    open_console(tab.page)
    shown = tab.page.get_by_text(re.compile("stty columns"))
    before = shown.inner_text()
    tab.page.set_viewport_size({"width": 390, "height": 800})
    expect(shown).not_to_have_text(before)
    tab.page.evaluate(AXE.read_text())
    found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]

    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_a_hostile_guest_changes_nothing_outside_of_its_rows(tab: Tab) -> None:
    open_console(tab.page)
    title = tab.page.title()
    tab.page.evaluate(PASTE, HOSTILE)  # the guest repeats it
    tab.page.keyboard.press("Enter")
    said(tab.page, "linkred<img src=x onerror=window.ran=1>")
    rows = tab.page.locator(".xterm-rows > div").count()

    assert tab.page.title() == title
    assert tab.page.evaluate("window.ran") is None
    assert tab.page.locator(".guest-terminal img, .guest-terminal a").count() == 0
    assert tab.page.locator(".guest-terminal style, .guest-terminal [onerror]").count() == 0
    assert rows > 5
    red = tab.page.locator(".xterm-rows span").get_by_text("red", exact=True).first
    assert red.evaluate("each => getComputedStyle(each).color") != tab.page.locator(
        ".xterm-rows"
    ).evaluate("each => getComputedStyle(each).color")
    tab.page.keyboard.press("Enter")  # nothing that it asked for was typed
    said(tab.page, "LAB-GUEST-HEARD")
    assert not tab.page.locator(".xterm-accessibility-tree").get_by_text("HEARD \x1b").count()
    assert tab.faults == []


def test_a_console_that_is_taken_says_so_and_can_be_taken_back(tab: Tab, guest: Guest) -> None:
    open_console(tab.page)
    sessions = guest.world.registry.console_sessions
    sessions.open(guest.vm_id, actor="test", force=True)

    shown = tab.page.get_by_role("status")
    shown.get_by_text("The console is closed: another session took the console").wait_for()
    tab.page.get_by_role("button", name="Open it again").click()
    tab.page.get_by_role("alert").get_by_text("can be taken by force").wait_for()
    tab.page.get_by_role("button", name="Take it from its user").click()
    said(tab.page, "[fuga: attached]")


def test_leaving_the_view_leaves_the_console(tab: Tab, guest: Guest) -> None:
    open_console(tab.page)
    tab.go("#/vms", "VMs")
    eventually(lambda: guest.world.host.held_console is None)
    last = guest.world.registry.events.list(subject_id=str(guest.vm_id), newest=True, limit=1)
    assert [each.to_state for each in last] == ["ended"]
