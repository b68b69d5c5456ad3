"""The operators' views of the console, in Chromium: each step really changes the register."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from controller.plans.executor import PlanExecutor, Planning
from controller.plans.plan_inputs import decide_plan
from controller.rest import create_app
from controller.settings import ControllerSettings
from placement.rebalancing.model import RebalanceLimits
from registry import HostAdmin, Registry
from registry.moves import PlanKind, PlanState
from service.settings_in_force import settings_in_force
from tests.capacity_days import record_days
from tests.e2e.conftest import a_token
from tests.e2e.moving import a_host_of_guests, a_running_vm
from tests.e2e.web.conftest import PATIENCE_MS, Tab, a_tab
from tests.e2e.web.test_web_console import AXE, MARKUP
from tests.raw_sql import RawSql
from tests.register import (
    ACTOR,
    a_report,
    add_group,
    add_request,
    add_tenant,
    add_vm_type,
    take_lease,
)
from tests.servers.serving import served

HOSTS = ("h1", "h2", "h3", "h4", "h5")
VIEWS = (
    ("#/map", "Cluster map"),
    ("#/capacity", "Capacity"),
    ("#/hosts/h1", "h1"),
    ("#/host-add", "Register a host"),
    ("#/plans", "Plans of moves"),
    ("#/tenants", "Tenants"),
    ("#/site", "Site"),
)
PLANNING = Planning(
    limits=RebalanceLimits(per_source=2, per_destination=2, at_once=8),
    rest_s=0,
    seed=0,
    budget_units=None,
    deadline_s=60,
    room_hold_s=600,
)
ACTED_AS = "operator:ops-token"
SECRET = "keep-me-to-yourself"


class InThisProcess:
    """Decides as the control centre's child does, without one."""

    def plan(self, data: bytes, *, kind: str, deadline_s: float) -> dict[str, Any]:
        return decide_plan(data)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Site:
    """A register with hosts, VMs and a tree of tenants, its API, and a centre that plans."""

    register: Registry
    url: str
    operator: str
    disks: list[str]  #: what the API says of disks without room

    def host(self, name: str) -> Any:
        return self.register.hosts.get(name)


@pytest.fixture(scope="module")
def site(upgraded_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("site") / "fuga.db"
    shutil.copy(upgraded_database, path)
    register = Registry.connect(f"sqlite:///{path}")
    add_vm_type(register)
    add_tenant(register, "a")
    add_tenant(register, "b")
    add_group(register, "lab")
    for number, name in enumerate(HOSTS):
        a_host_of_guests(register, name, labels=[f"zone={'east' if number < 3 else 'west'}"])
    for name in ("web", "db", "cache"):
        a_running_vm(register, register.hosts.get("h1"), name=name)
    for name in ("logs", "mail"):
        a_running_vm(register, register.hosts.get("h5"), name=name)
    stop, lease = threading.Event(), take_lease(register)
    register.capacity_history.sample(lease)
    raw = RawSql(register.database_url)
    record_days(raw, register.now())
    raw.close()
    centre = PlanExecutor(
        register,
        lambda: lease,
        InThisProcess(),  # type: ignore[arg-type]
        PLANNING,
        interval_s=0.1,
        on_requested=lambda: None,
    )
    thread = threading.Thread(target=centre.run, args=(stop,))
    thread.start()
    settings = ControllerSettings(database_url=f"postgresql://fuga:{SECRET}@db/fuga")  # type: ignore[arg-type]
    disks: list[str] = []
    app = create_app(register, settings=settings_in_force(settings, {}), disks=lambda: tuple(disks))
    try:
        with served(app) as url:
            yield Site(register, url, a_token(register, None), disks)
    finally:
        stop.set()
        thread.join(60)
        register.close()


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Expect of a busy machine no more than of one of its own."""
    expect.set_options(timeout=PATIENCE_MS)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture
def tab(browser: Browser, site: Site) -> Iterator[Tab]:
    with a_tab(browser, site.url) as found:
        found.log_in(site.operator)
        yield found
        # Chromium notes refusals, too, which the page tells in words.
        assert [each for each in found.faults if "Failed to load resource" not in each] == []


def until(what: Callable[[], object]) -> None:
    """Wait for what the register is to be."""
    for _ in range(PATIENCE_MS // 100):
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that")


def asks(page: Page, title: str) -> Locator:
    dialog = page.get_by_role("dialog", name=title)
    dialog.wait_for()
    return dialog


# ---- the map ---------------------------------------------------------------------


def test_the_map_shows_each_host_and_leads_to_it(tab: Tab) -> None:
    page = tab.page
    tab.go("#/map", "Cluster map")
    picture = page.get_by_role("img", name="5 hosts as squares")
    picture.hover(position={"x": 10, "y": 30})  # below the heading of the first zone
    expect(page.locator(".map-tip")).to_contain_text("h1")
    expect(page.locator(".map-tip")).to_contain_text("3 VMs")

    page.get_by_label("Colour by").select_option(label="Tenant with most VMs")
    page.get_by_role("button", name="none 3").click()  # a colour of the legend
    listed = page.get_by_role("region", name="Hosts of the map")
    expect(listed.get_by_role("link")).to_have_text(["h2", "h3", "h4"])
    page.get_by_role("searchbox", name="Find hosts").fill("west")
    expect(listed.get_by_role("link")).to_have_text(["h4"])
    listed.get_by_role("link", name="h4").press("Enter")  # by keyboard alone
    page.get_by_role("heading", level=1, name="h4").wait_for()

    tab.go("#/map", "Cluster map")
    picture.click(position={"x": 10, "y": 30})
    page.get_by_role("heading", level=1, name="h1").wait_for()


def test_a_map_of_ten_thousand_hosts_is_one_call_and_few_elements(tab: Tab) -> None:
    many = 10_000
    page = tab.page
    answer = {
        "at": "2026-01-01T00:00:00Z",
        "names": [f"kvm-{number:05}" for number in range(many)],
        "admin": ["active"] * many,
        "health": ["up" if number % 100 else "down" for number in range(many)],
        "closed": [None] * many,
        "labels": [f"rack={number}" for number in range(250)],
        "labels_of": [[number // 40] for number in range(many)],
        "resources": [
            {
                "resource": "vcpus",
                "capacity": [64] * many,
                "committed": [number % 70 for number in range(many)],
            }
        ],
        "tenants": ["a"],
        "held_by": [[[0, number % 70]] for number in range(many)],
    }
    page.route("**/v1/host-map", lambda route: route.fulfill(json=answer))
    tab.go("#/map", "Cluster map")
    page.get_by_role("img", name="10000 hosts as squares").wait_for()

    page.locator(".map-tools select").first.select_option("state")
    page.get_by_role("button", name="down 100").click()
    expect(page.get_by_text("100 of 10,000 hosts")).to_be_visible()

    assert page.evaluate("document.querySelectorAll('*').length") < 1_500
    assert sum("/v1/host-map" in each for each in tab.asked) == 1
    assert sum("/v1/hosts" in each for each in tab.asked) == 0


# ---- one host --------------------------------------------------------------------


def test_a_host_is_drained_by_the_moves_that_were_shown(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/hosts/h1", "h1")
    page.get_by_role("button", name="Drain").press("Enter")
    dialog = asks(page, "Drain h1?")
    expect(dialog).to_contain_text("fuga host drain h1")
    dialog.get_by_label("move to other hosts").check()
    expect(dialog).to_contain_text("3 VMs would move")
    expect(dialog).to_contain_text("None would stay")
    assert site.host("h1").admin == HostAdmin.ACTIVE  # nothing has changed yet

    dialog.get_by_role("button", name="Drain and move").press("Enter")
    dialog.wait_for(state="hidden")

    assert site.host("h1").admin == HostAdmin.DRAINING
    (plan,) = site.register.plans.list(kind=PlanKind.EVACUATE).items
    assert (plan.state, plan.approved_by, plan.moves) == (PlanState.APPROVED, ACTED_AS, 3)
    expect(page.get_by_role("link", name="Plan to empty it")).to_be_visible()

    tab.go(f"#/plans/{plan.id}", "Empty hosts: h1")
    page.get_by_role("button", name="Cancel", exact=True).first.click()
    asks(page, "End this plan?").get_by_role("button", name="End the plan").click()
    until(lambda: site.register.plans.get(plan.id).state == PlanState.CANCELLED)

    tab.go("#/hosts/h1", "h1")
    page.get_by_role("button", name="Activate").click()
    asks(page, "Place VMs on h1 again?").get_by_role("button", name="Activate").click()
    until(lambda: site.host("h1").admin == HostAdmin.ACTIVE)


def test_who_only_looked_at_what_would_move_leaves_nothing_behind(tab: Tab, site: Site) -> None:
    before = {each.id for each in site.register.plans.list().items}
    tab.go("#/hosts/h2", "h2")
    tab.page.get_by_role("button", name="Maintenance").click()
    dialog = asks(tab.page, "Take h2 into maintenance?")
    dialog.get_by_label("move to other hosts").check()
    expect(dialog).to_contain_text("0 VMs would move")
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")

    (looked,) = (each for each in site.register.plans.list().items if each.id not in before)
    until(lambda: site.register.plans.get(looked.id).ended_at is not None)
    assert site.host("h2").admin == HostAdmin.ACTIVE


def test_settings_of_a_host_are_changed_and_a_refusal_is_told(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/hosts/h3", "h3")
    page.get_by_role("button", name="Change settings").click()
    dialog = asks(page, "Settings of h3")
    dialog.get_by_label("Labels").fill("zone=east, ssd, =")
    dialog.get_by_label("Over-commit").first.fill("2.5")
    expect(dialog).to_contain_text("Capacity of vcpus: 16 now, 40 then")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("labels")
    assert site.host("h3").labels == ("zone=east",)

    dialog.get_by_label("Labels").fill("zone=east, ssd")
    expect(dialog).to_contain_text("--label zone=east --label ssd --ratio vcpus=2.5")
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="hidden")

    changed = site.host("h3")
    assert set(changed.labels) == {"ssd", "zone=east"}
    assert changed.inventories[0].ratio_thousandths == 2500


def test_a_host_gets_another_address_and_a_refusal_is_told(tab: Tab, site: Site) -> None:
    page = tab.page
    before = site.host("h3")
    tab.go("#/hosts/h3", "h3")
    page.get_by_role("button", name="Change settings").click()
    dialog = asks(page, "Settings of h3")
    uri = dialog.get_by_label("libvirt URI")
    expect(uri).to_have_value(before.uri)
    expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    uri.fill(site.host("h1").uri)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("h1.example.org")
    uri.fill("qemu+ssh://h3.example.org/system?command=/bin/sh")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("command")
    assert site.host("h3").uri == before.uri

    uri.fill("qemu+tls://h3.example.org/system")
    expect(dialog).to_contain_text("fuga host set h3 --uri qemu+tls://h3.example.org/system")
    dialog.get_by_label("Credential").fill("spare")
    expect(dialog).to_contain_text("--credential spare")
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="hidden")

    changed = site.host("h3")
    assert (changed.uri, changed.credential) == ("qemu+tls://h3.example.org/system", "spare")
    assert (changed.labels, changed.inventories) == (before.labels, before.inventories)


def test_a_host_that_is_down_is_fenced_by_hand(tab: Tab, site: Site) -> None:
    site.register.hosts.record_miss(
        site.host("h4").id, "no answer", unreachable_after=1, down_after=1
    )
    tab.go("#/hosts/h4", "h4")
    tab.page.get_by_role("button", name="Fence").click()
    dialog = asks(tab.page, "Fence h4?")
    expect(dialog.get_by_role("button", name="It is off")).to_be_disabled()
    dialog.get_by_label("It is switched off, and I keep it off").check()
    dialog.get_by_role("button", name="It is off").click()
    dialog.wait_for(state="hidden")

    fence = site.host("h4").fence
    assert (fence.state, fence.requested_by) == ("fenced", ACTED_AS)


def test_a_host_is_registered_and_removed(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/host-add", "Register a host")
    page.get_by_label("Name", exact=True).fill("h9")
    page.get_by_label("libvirt URI").fill("nonsense://h9")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    page.get_by_label("libvirt URI").fill("qemu+tls://h9.example.org/system")
    page.get_by_label("Labels").fill("zone=west")
    page.get_by_role("button", name="Register").click()
    page.get_by_role("heading", level=1, name="h9").wait_for()
    assert site.host("h9").labels == ("zone=west",)
    expect(page.locator("h1 .state")).to_have_text("starting")

    page.get_by_role("button", name="Remove").click()
    asks(page, "Remove h9?").get_by_role("button", name="Remove").click()
    page.get_by_role("heading", level=1, name="Hosts").wait_for()
    assert site.host("h9").admin == HostAdmin.RETIRED


def test_addresses_of_hosts_and_vms_are_shown(tab: Tab, site: Site) -> None:
    seen = replace(
        a_report(hostname="h2"), interfaces={"eno1": "52:54:00:12:34:56"}, addresses=("192.0.2.4",)
    )
    site.register.hosts.record_report(site.host("h2").id, seen)
    vm = site.register.vms.list(limit=1).items[0]

    tab.go("#/hosts/h2", "h2")
    expect(tab.page.get_by_text("192.0.2.4", exact=True)).to_be_visible()
    expect(tab.page.get_by_text("eno1 52:54:00:12:34:56", exact=True)).to_be_visible()
    tab.go(f"#/vms/{vm.id}", vm.name)
    expect(tab.page.get_by_text(str(vm.mac), exact=True)).to_be_visible()


# ---- plans -----------------------------------------------------------------------


def test_a_plan_is_proposed_compared_and_approved(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/plans", "Plans of moves")
    page.get_by_label("Propose a plan").select_option(label="Empty hosts")
    page.get_by_role("combobox", name="Hosts (names").fill("h5")
    expect(page.get_by_text("fuga plan evacuate h5")).to_be_visible()
    page.get_by_role("button", name="Propose").click()
    page.get_by_role("heading", level=1, name="Empty hosts: h5").wait_for()
    expect(page.locator("h1 .state")).to_have_text("proposed")
    (plan,) = site.register.plans.list(state=PlanState.PROPOSED).items

    measures = page.locator(".measures")
    expect(measures.get_by_role("row")).to_have_count(6)
    expect(measures).to_contain_text("Hosts in use")
    moves = page.get_by_role("region", name="moves of the plan")
    expect(moves.get_by_role("row")).to_have_count(3)
    expect(moves).to_contain_text("evacuates")

    page.get_by_role("button", name="Approve").press("Enter")
    asks(page, "Carry this plan out?").get_by_role("button", name="Approve").press("Enter")
    until(lambda: site.register.plans.get(plan.id).state == PlanState.APPROVED)
    expect(page.get_by_role("img", name="0 of 2 moves over")).to_be_visible()
    until(lambda: site.register.moves.list().items)

    tab.go("#/plans", "Plans of moves")
    under_way = page.get_by_role("region", name="moves under way")
    under_way.get_by_role("button", name="Cancel").first.click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Cancel the move").click()
    until(lambda: any(each.cancelled_by for each in site.register.moves.list().items))
    site.register.plans.cancel(plan.id, actor=ACTOR)


def test_a_plan_says_what_becomes_better_and_what_worse(tab: Tab, site: Site) -> None:
    plans = site.register.plans
    plan = plans.create(PlanKind.BALANCE, {}, approve=False, actor=ACTOR)
    plans.propose(
        plan.id,
        [],
        before={"potential": 1.0, "hosts_in_use": 2, "moved_gib": 0.0},
        after={"potential": 2.0, "hosts_in_use": 3, "moved_gib": 1.5},
        stays=[],
        cut=False,
        inputs=b"",
        document={},
        actor=ACTOR,
    )

    tab.go(f"#/plans/{plan.id}", "Balance")

    expect(tab.page.get_by_text("Better: the load of hosts is nearer")).to_have_text(
        "Better: the load of hosts is nearer to the pool's. Worse: 1 more host is in use."
        " Cost: 1.5 GiB to move."
    )


# ---- tenants ---------------------------------------------------------------------


def test_a_weight_is_changed_after_its_effect_was_shown(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/tenants", "Tenants")
    page.get_by_role("button", name="Change a", exact=True).press("Enter")
    dialog = asks(page, "Change tenant a")
    dialog.get_by_label("Weight").fill("3")
    effect = dialog.get_by_role("region", name="Effect")
    expect(effect.get_by_role("row", name=re.compile("^a "))).to_contain_text("50.0 % → 75.0 %")
    assert site.register.tenants.get("a").weight == 1  # a rehearsal changes nothing
    expect(dialog).to_contain_text("fuga tenant set a --weight 3")
    dialog.get_by_role("button", name="Apply").press("Enter")
    dialog.wait_for(state="hidden")

    assert site.register.tenants.get("a").weight == 3


def test_a_tenant_goes_into_a_group_by_dragging_and_back_by_keyboard(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/tenants", "Tenants")
    tree = page.get_by_role("region", name="Tree of tenants")
    tree.get_by_role("row", name=re.compile("^b ")).drag_to(
        tree.get_by_role("row", name="lab group")
    )
    dialog = asks(page, "Change tenant b")
    expect(dialog).to_contain_text("no group → lab")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    assert site.register.tenants.get("b").parent == "lab"

    page.get_by_role("button", name="Change b").press("Enter")
    dialog.get_by_label("Group").select_option("")
    expect(dialog).to_contain_text("fuga tenant move b --to /")
    expect(dialog).to_contain_text("lab → no group")
    dialog.get_by_role("button", name="Apply").press("Enter")
    dialog.wait_for(state="hidden")
    assert site.register.tenants.get("b").parent is None


def test_a_tenant_goes_into_a_group_by_a_finger(browser: Browser, site: Site) -> None:
    """Where the target is marked, before the finger leaves it."""
    size = {"width": 390, "height": 1800}  # all three rows, which are cards here
    with a_tab(browser, site.url, viewport=size, has_touch=True) as tab:
        page = tab.page
        tab.log_in(site.operator, "#/tenants", "Tenants")
        tree = page.get_by_role("region", name="Tree of tenants")
        group = tree.locator("tr[data-drag=lab]")
        group.wait_for()
        grip = tree.locator("tr[data-drag=b] .grip").bounding_box()
        there = group.locator("td").first.bounding_box()
        assert grip is not None
        assert there is not None
        finger = tab.context.new_cdp_session(page)

        def touch(kind: str, at: Any = None) -> None:
            points = [] if at is None else [{"x": at["x"] + 8, "y": at["y"] + 8}]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", grip)
        touch("touchMove", there)
        expect(group).to_have_class("takes")
        expect(page.get_by_text("Drop it here to have it in no group")).to_be_visible()
        touch("touchEnd")

        dialog = asks(page, "Change tenant b")
        expect(dialog).to_contain_text("no group → lab")
        dialog.get_by_role("button", name="Cancel").click()
        assert site.register.tenants.get("b").parent is None
        assert tab.faults == []


def test_a_quota_is_set_and_a_tenant_is_made_and_removed(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/tenants", "Tenants")
    page.get_by_role("button", name="Quota of a", exact=True).click()
    dialog = asks(page, "Quota of a")
    dialog.get_by_label("VMs").fill("2")
    dialog.get_by_label("Requests above it").select_option("wait")
    expect(dialog).to_contain_text("fuga quota set a vms=2 --over wait")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    quota = site.register.quotas.get("a")
    assert [(each.resource, each.limit) for each in quota.limits] == [("vms", 2)]
    assert quota.over_quota == "wait"

    page.get_by_role("button", name="New tenant or group").click()
    dialog = asks(page, "New tenant or group")
    dialog.get_by_label("Name").fill("c")
    dialog.get_by_role("region", name="Effect").wait_for()
    keys = answers_get_lost_once(page, "**/v1/tenants")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("The API does not answer").wait_for()
    assert site.register.tenants.get("c").weight == 1
    dialog.get_by_role("button", name="Create").click()
    dialog.wait_for(state="hidden")
    assert len(keys) == 2
    assert keys[0] == keys[1] is not None
    row = page.get_by_role("region", name="Tree of tenants").get_by_role(
        "row", name=re.compile("^c ")
    )
    row.get_by_role("button", name="Remove").click()
    asks(page, "Remove c?").get_by_role("button", name="Remove").click()
    until(lambda: "c" not in [each.name for each in site.register.tenants.list().items])


def answers_get_lost_once(page: Page, url: str) -> list[str | None]:
    """Let the first POST to a URL be carried out and not answered; return the keys of all."""
    keys: list[str | None] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST" or "dry_run" in route.request.url:
            route.continue_()
            return
        keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) > 1:
            route.continue_()
            return
        route.fetch()
        route.abort()

    page.route(url, lose)
    return keys


# ---- the site --------------------------------------------------------------------


def test_the_slot_loop_is_paused_with_a_reason_and_resumed(tab: Tab, site: Site) -> None:
    page = tab.page
    tab.go("#/site", "Site")
    page.get_by_label("Reason").fill("a new switch")
    page.get_by_role("button", name="Pause").click()
    dialog = asks(page, "Pause the slot loop?")
    expect(dialog).to_contain_text("fuga pause 'a new switch'")
    dialog.get_by_role("button", name="Pause").click()
    dialog.wait_for(state="hidden")
    paused = site.register.slot_loop.get()
    assert (paused.state, paused.reason) == ("paused", "a new switch")

    page.get_by_role("button", name="Resume").click()
    asks(page, "Resume the slot loop?").get_by_role("button", name="Resume").click()
    until(lambda: site.register.slot_loop.get().state == "running")

    calls = page.get_by_role("region", name="calls")
    expect(calls).to_contain_text("POST /v1/slot-loop/pause")
    page.get_by_label("Method").select_option("DELETE")
    expect(page.get_by_text("fuga audit --method DELETE --since 1d")).to_be_visible()
    # Without a call that was a DELETE there is no table at all.
    pauses = page.get_by_role("row", name="/v1/slot-loop/pause")
    expect(pauses).to_have_count(0)


def test_a_disk_without_room_is_shown_to_operators_on_every_view_until_it_has_room(
    browser: Browser, tab: Tab, site: Site
) -> None:
    said = "the image store has 12 MiB free, less than 1024 MiB"
    site.disks.append(said)
    tab.go("#/site", "Site")
    wrong = tab.page.get_by_role("main")
    troubles = tab.page.locator(".troubles")
    expect(wrong.get_by_role("listitem").filter(has_text=said)).to_contain_text("full")
    expect(wrong).not_to_contain_text("Nothing is late")
    expect(troubles).to_contain_text(said)
    tab.go("#/tenants", "Tenants")
    expect(troubles).to_contain_text(said)
    with a_tab(browser, site.url) as of_tenant:
        with of_tenant.page.expect_response("**/v1/status"):
            of_tenant.log_in(a_token(site.register, "b", "b-of-disks"))
        assert said not in of_tenant.page.content()

    site.disks.clear()
    tab.go("#/site", "Site")
    expect(wrong).not_to_contain_text(said)
    expect(troubles).not_to_contain_text(said)


def test_settings_are_shown_and_no_secret_of_them(tab: Tab) -> None:
    tab.go("#/site", "Site")
    settings = tab.page.get_by_role("region", name="settings")
    expect(settings).to_contain_text("FUGA_DATABASE_URL")
    expect(settings).to_contain_text("(set)")
    tab.page.get_by_label("settings that nobody has set").check()
    expect(settings).to_contain_text("FUGA_POLICY_DEADLINE_S")

    assert SECRET not in tab.page.content()


# ---- who sees what ---------------------------------------------------------------


def test_an_operator_who_only_reads_is_offered_no_step(browser: Browser, site: Site) -> None:
    _, secret = site.register.tokens.create("operator", None, "eyes", actor=ACTOR, read_only=True)
    steps = {
        *("Drain", "Maintenance", "Activate", "Fence", "Remove", "Change settings", "Repair"),
        *("Propose", "Approve", "Change a", "Quota of a", "New tenant or group", "Pause"),
        *("Register", "Move its VMs", "Cancel"),
    }
    with a_tab(browser, site.url) as tab:
        tab.log_in(secret)
        for where, heading in VIEWS:
            if where == "#/host-add":
                continue
            tab.go(where, heading)
            expect(tab.page.locator(".loading")).to_have_count(0, timeout=PATIENCE_MS)
            offered = tab.page.get_by_role("button").all_inner_texts()
            assert steps.isdisjoint(offered), where
        tab.page.evaluate("location.hash = '#/host-add'")
        expect(tab.page.get_by_text("it cannot register hosts")).to_be_visible()


def test_capacity_is_drawn_by_day_and_listed_in_words_and_in_a_table(tab: Tab) -> None:
    tab.go("#/capacity", "Capacity")
    panel = tab.page.locator("section.panel").filter(
        has=tab.page.get_by_role("heading", name="vcpus")
    )

    expect(panel.get_by_text("committed grows by 14 a day")).to_be_visible()
    curve = panel.get_by_role("img", name="vcpus: in service")
    expect(curve).to_have_attribute("aria-label", re.compile("committed .*used"))
    # A day without samples parts the line; a line begins with a move.
    lines = curve.locator("path.line.one")
    assert (lines.get_attribute("d") or "").count("M") == 2
    panel.get_by_text("As a table").click()
    expect(panel.get_by_role("row")).to_have_count(1 + 30)

    tab.page.get_by_label("Class of hosts").select_option("zone=east")
    expect(panel.get_by_text("the history is too short for a trend")).to_be_visible()
    assert not [each for each in tab.asked if "/capacity/history" in each and "since" not in each]


def test_a_tenant_sees_no_view_of_operators(browser: Browser, site: Site) -> None:
    with a_tab(browser, site.url) as tab:
        tab.log_in(a_token(site.register, "b"))
        links = tab.page.get_by_role("navigation", name="Views").get_by_role("link")
        assert {"Map", "Capacity", "Plans", "Tenants", "Site"}.isdisjoint(links.all_inner_texts())
        for where, _ in VIEWS:
            tab.page.evaluate("where => { location.hash = where; }", where)
            if not where.startswith("#/hosts"):
                expect(tab.page.get_by_text("There is no such view")).to_be_visible()
        requested = ("host-map", "/capacity/trends", "/plans", "/audit", "/settings")
        assert [each for each in tab.asked if each.endswith(requested)] == []


def test_no_string_of_a_host_tenant_or_setting_becomes_markup(tab: Tab) -> None:
    kept = {"resource", "id", "number", "state", "health", "admin", "kind", "host_id", "source"}

    def poisoned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: poisoned(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [poisoned(each, key) for each in value]
        if key in kept or key.endswith(("_at", "_id")) or not isinstance(value, str):
            return value
        return value + MARKUP

    def poison(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=poisoned(answer.json()))

    tab.page.route("**/v1/**", poison)
    for where, _ in reversed(VIEWS):
        if where != "#/host-add":
            tab.page.evaluate("where => { location.hash = where; }", where)
            tab.page.get_by_text(MARKUP).first.wait_for(state="attached")

    assert tab.page.evaluate("window.ran") is None
    assert tab.page.locator("img").count() == 0
    tab.faults.clear()  # paths that were poisoned, too, are not found


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_operators_views_fit_and_axe_finds_nothing_serious(
    browser: Browser, site: Site, width: int, theme: Any
) -> None:
    add_request(site.register, 1, tenant="b", name=f"waits-{width}")
    (plan,) = site.register.plans.list(kind=PlanKind.EVACUATE, limit=1).items[:1] or [
        site.register.plans.create(PlanKind.EVACUATE, {"hosts": ["h1"]}, approve=False, actor=ACTOR)
    ]
    opened = (
        *((where, heading, None) for where, heading in VIEWS),
        (f"#/plans/{plan.id}", "Empty hosts", None),
        ("#/hosts/h1", "h1", "Drain"),
        ("#/hosts/h1", "h1", "Change settings"),
        ("#/tenants", "Tenants", "Change a"),
        ("#/tenants", "Tenants", "Quota of a"),
    )
    found = []
    size = {"width": width, "height": 900}
    with a_tab(browser, site.url, viewport=size, color_scheme=theme) as tab:
        tab.log_in(site.operator)
        tab.page.evaluate(AXE.read_text())
        for where, heading, button in opened:
            tab.go(where, heading)
            expect(tab.page.locator(".loading")).to_have_count(0, timeout=PATIENCE_MS)
            if button is not None:
                tab.page.get_by_role("button", name=button, exact=True).click()
                tab.page.locator("dialog[open]").wait_for()
            shown = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [
                (where, button, each["id"], [node["html"] for node in each["nodes"]])
                for each in shown["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, where
            if button is not None:
                tab.page.keyboard.press("Escape")
                tab.page.locator("dialog[open]").wait_for(state="hidden")

    assert found == []
