"""README's first steps and an operator's work in the console, by mouse, on real hosts and guests.

One cluster, from the link that `fuga up` prints at a terminal. What is typed is what a mouse
cannot do: names, numbers, and what a guest is asked on its console.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from lab.cluster import real_hosts_obstacle
from tests.e2e.web.conftest import Tab, a_tab
from tests.servers.browser import PATIENCE_MS, a_browser
from tests.servers.running import RunningFuga, eventually
from tests.servers.terminal import at_a_terminal

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.slow,
    pytest.mark.skipif(real_hosts_obstacle() is not None, reason=str(real_hosts_obstacle())),
]
LINK = re.compile(rb"\S+/web/#login=\S+")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningFuga, Tab]]:
    """A tab that the printed link has logged in."""
    fuga = RunningFuga(tmp_path_factory.mktemp("mouse") / "state")
    expect.set_options(timeout=PATIENCE_MS)
    words = ("up", "--port", "0", "--driver", "qemu")
    with at_a_terminal(*words, env=fuga.environment()) as terminal:
        try:
            terminal.until(b"Ctrl-C stops")
            url, code = LINK.findall(terminal.shown)[0].decode().split("/web/")
            assert not (fuga.state_dir / "login-link").exists()
            with a_browser() as browser, a_tab(browser, url, at=f"/web/{code}") as found:
                found.page.set_default_timeout(PATIENCE_MS)
                yield fuga, found
            assert [each for each in found.faults if "Failed to load resource" not in each] == []
        finally:
            terminal.signal(signal.SIGINT)
            terminal.ended()
            fuga.down()
            expect.set_options(timeout=5_000)


@pytest.mark.long
def test_the_first_steps_are_done_from_the_link_to_a_guests_answer_and_deletion(
    tab: tuple[RunningFuga, Tab],
) -> None:
    page = tab[1].page
    for name, kind, many, tenant in (("db", "large", 2, "b"), ("web", "small", 4, "a")):
        request(page, name=name, kind=kind, many=many, tenant=tenant)
    go(page, "Requests")
    for name, many in (("db", 2), ("web", 4)):
        expect(row(page, name)).to_contain_text(f"{many} of {many}")
    row(page, "web").get_by_role("link", name="web").click()
    expect(page.get_by_text("All its VMs are placed.")).to_be_visible()
    go(page, "VMs")
    row(page, "web-1").get_by_role("link", name="web-1").click()
    expect(page.locator("h1 .state")).to_have_text("running")
    expect(page.get_by_text(re.compile(r"in the game of round \d"))).to_be_visible()

    page.get_by_role("button", name="Open the console").click()
    screen = page.locator(".xterm-accessibility-tree")
    expect(screen).to_contain_text("LAB-GUEST-BEAT")
    page.keyboard.type("is anybody there?\n")
    expect(screen).to_contain_text("LAB-GUEST-HEARD is anybody there?")
    page.get_by_role("button", name="Leave the console").click()
    expect(page.get_by_role("button", name="Open the console")).to_be_visible()

    go(page, "Rounds")
    row(page, "1").get_by_role("link", name="1", exact=True).click()
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("Identical: decided by fuga")).to_be_visible()

    go(page, "Requests")
    for name in ("db", "web"):
        row(page, name).get_by_role("checkbox").check()
    delete = page.get_by_role("button", name=re.compile("^Delete"))
    delete.click()
    asked(page, "Delete 2 requests?").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No requests.")).to_be_visible()
    go(page, "VMs")
    expect(page.get_by_text("No VMs.")).to_be_visible()


@pytest.mark.long
def test_an_operator_drains_a_host_carries_a_plan_out_and_changes_a_weight(
    tab: tuple[RunningFuga, Tab],
) -> None:
    fuga, found = tab
    page = found.page
    request(page, name="stays", kind="small", many=2, tenant="a")
    go(page, "VMs")
    page.get_by_role("searchbox").fill("stays running")
    expect(page.get_by_role("link", name=re.compile("^stays-"))).to_have_count(2)
    row(page, "stays-1").get_by_role("link", name="stays-1").click()
    page.locator(".lead").get_by_role("link").first.click()  # its host
    host = page.locator("h1").inner_text().split()[0]

    page.get_by_role("button", name="Drain").click()
    dialog = asked(page, f"Drain {host}?")
    expect(dialog).to_contain_text("It gets no new VMs from the next round on.")
    dialog.get_by_label("move to other hosts").click()
    expect(dialog).to_contain_text("would move")
    expect(dialog).to_contain_text("None would stay.")
    dialog.get_by_label("stay where they are").click()
    dialog.get_by_role("button", name="Drain", exact=True).click()
    dialog.wait_for(state="hidden")
    expect(page.locator("h1 .state").first).to_have_text("draining")

    go(page, "Plans")
    page.get_by_label("Propose a plan").select_option(label="Empty hosts")
    page.get_by_role("combobox", name="Hosts (names").fill(host)
    page.get_by_role("button", name="Propose").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Empty hosts: {host} proposed")
    expect(page.locator(".measures")).to_contain_text("Hosts in use")
    moves = page.get_by_role("region", name="moves of the plan")
    expect(moves).to_contain_text("stays-1")
    page.get_by_role("button", name="Approve").click()
    asked(page, "Carry this plan out?").get_by_role("button", name="Approve").click()
    expect(page.locator("h1 .state")).to_have_text("done")
    expect(page.get_by_text("0 failed or refused, 0 to go")).to_be_visible()
    with fuga.client() as client:
        vms = client.get("/v1/vms").json()["items"]
    assert {each["observed"] for each in vms} == {"running"}
    assert host not in {each["host"] for each in vms}

    go(page, "Tenants")
    tree = page.get_by_role("region", name="Tree of tenants")
    tree.get_by_role("button", name="Change a", exact=True).click()
    dialog = asked(page, "Change tenant a")
    dialog.get_by_label("Weight").fill("3")
    effect = dialog.get_by_role("region", name="Effect")
    expect(effect.get_by_role("row", name=re.compile("^a "))).to_contain_text("50.0 % → 75.0 %")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    expect(tree.get_by_role("row", name=re.compile("^a "))).to_contain_text("75.0 %")
    with fuga.client() as client:
        assert client.get("/v1/tenants/a").json()["weight"] == 3


@pytest.mark.long
def test_an_operator_reads_round_1_as_theatre(tab: tuple[RunningFuga, Tab]) -> None:
    fuga, found = tab
    page = found.page
    with fuga.client() as client:
        eventually(lambda: client.get("/v1/rounds").json()["items"])
        body = client.get("/v1/rounds/1/game").json()
    go(page, "Rounds")
    row(page, "1").get_by_role("link", name="1", exact=True).click()
    page.get_by_role("link", name="Watch as theatre").click()
    expect(page.get_by_text("the same bit for bit")).to_be_visible()
    assert body["identical"]
    assert body["steps"]
    names = [each["name"] for each in body["hosts"]]

    for at, step in enumerate(body["steps"], start=1):
        page.get_by_role("button", name="Next").click()
        expect(page.locator(".controls .counted")).to_have_text(f"{at} / {len(body['steps'])}")
        said = page.locator(".narration").inner_text()
        if step["kind"] == "game":
            assert f"{step['players']} host" in said
            assert f"may take {step['vms']} VM" in said
        if step["kind"] == "move":
            weighed = step["combinations"]
            assert said.startswith(f"{names[step['host']]} weighs {len(weighed)} combination")
            taken = page.locator(".weighed .chosen")
            assert _number(taken.locator(".utility")) == pytest.approx(
                next(each["utility"] for each in weighed if each["chosen"]), abs=5e-5
            )

    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    for share in body["tenants"]:
        there = page.locator(".shares li", has=page.get_by_text(share["name"], exact=True))
        assert _number(there.locator(".much")) == pytest.approx(100 * share["after"], abs=0.05)
    on_stage = page.get_by_role("list", name="Hosts in the order in which they play")
    took = [each for each in on_stage.locator(".took").all_inner_texts() if "+" in each]
    placed = sum(row["count"] for step in body["steps"] for row in step["rows"])
    assert sum(int(many) for each in took for many in re.findall(r"\+ (\d+)", each)) == placed


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
    page.get_by_role("heading", level=1).wait_for()


def request(page: Page, *, name: str, kind: str, many: int, tenant: str) -> None:
    """Request VMs, once the page has told that they fit."""
    go(page, "Requests")
    page.get_by_role("link", name="Request VMs").click()
    page.get_by_role("combobox", name="Type").select_option(kind)
    page.get_by_label("How many").fill(str(many))
    page.get_by_role("combobox", name="Tenant").select_option(tenant)
    page.get_by_label("Name", exact=False).first.fill(name)
    expect(page.get_by_text("would fit now")).to_be_visible()
    page.get_by_role("button", name="Request", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def row(page: Page, name: str) -> Locator:
    """Return the row of a table whose link has that name."""
    return page.locator("tbody tr", has=page.get_by_role("link", name=name, exact=True))


def asked(page: Page, title: str) -> Locator:
    dialog = page.get_by_role("dialog", name=title)
    dialog.wait_for()
    return dialog


def _number(place: Locator) -> float:
    found: Any = re.search(r"[−-]?\d+(\.\d+)?", place.inner_text())
    return float(found[0].replace("−", "-"))
