"""What-ifs in the web console: asked for, cancelled, and their reports read; in Chromium."""

from __future__ import annotations

from uuid import uuid4

import pytest
from playwright.sync_api import Browser

from registry import Registry
from registry.admin import WhatIfEvent
from tests.e2e.conftest import a_token
from tests.e2e.web.conftest import Tab, a_tab
from tests.e2e.web.test_web_console import AXE, MARKUP

BODY = {
    "hours": 24,
    "add_hosts": {"count": 2, "like": "h1", "capacity": None, "zone": None},
    "remove_hosts": [],
    "policy": None,
    "parameters": {},
    "weights": {},
}


def a_run(waiting: int, tenant: str) -> dict[str, object]:
    count = {"asked": 60, "placed": 60 - waiting, "running": 80 - waiting, "waiting": waiting}
    rest = dict.fromkeys(("completed", "lost", "given_up"), 0)
    line = [1.0, None, 2.0]
    return {
        "policy": "fuga",
        "hosts": 4,
        "vms": {**count, **rest, "at_the_beginning": 20},
        "placed_part": (60 - waiting) / 60,
        "wait_s": {"mean": 30.0, "p50": 0.0, "p90": 120.0, "max": 600.0},
        "fair_distance": 0.05,
        "used": {"vcpus": 0.5, "memory_mib": 0.75},
        "rounds": 9,
        "fallbacks": 0,
        "seconds": 1.0,
        "tenants": [
            {
                "tenant": tenant,
                "asked": 60,
                "placed": 60 - waiting,
                "waiting": waiting,
                "mean_wait_s": 30.0,
                "share": 0.5,
            }
        ],
        "waiting": [
            {"tenant": tenant, "demand": {"vcpus": 1}, "vms": waiting, "longest_wait_s": 7200.0}
        ],
        "lines": {
            "at_s": [0.0, 60.0, 120.0],
            "running": line,
            "waiting": line,
            "fair_distance": [0.1, None, 0.2],
            "used": {"vcpus": [0.1, 0.2, 0.3], "memory_mib": [0.2, 0.3, 0.4]},
        },
    }


def finished(register: Registry, tenant: str) -> str:
    executor_id = uuid4()
    requested = register.what_ifs.create(BODY, executor_id, actor="operator:ada")
    register.what_ifs.report_progress(requested.id, executor_id, 0.5)
    inputs = {
        "at": "2026-05-01T12:00:00+00:00",
        "since": "2026-04-30T12:00:00+00:00",
        "hours": 24,
        "hosts": 2,
        "vms_running": 20,
        "vms_waiting": 20,
        "vms_repeated": 40,
        "lifetimes_known": False,
        "slot_length_s": 60.0,
        "policy": "fuga",
        "decided_by": "round 1",
    }
    report = {
        "inputs": inputs,
        "as_it_is": a_run(40, tenant),
        "what_if": a_run(7, tenant),
        "cut": [f"10 VMs of {tenant} are left out"],
    }
    register.what_ifs.end(requested.id, executor_id, WhatIfEvent.FINISHED, report=report)
    return str(requested.id)


@pytest.mark.sqlite
@pytest.mark.parametrize("register_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_report_is_read_at_each_width_and_names_in_it_are_inert(
    browser: Browser, url: str, register: Registry, scheme: str, width: int
) -> None:
    key = finished(register, MARKUP)
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with a_tab(browser, url, **options) as tab:
        tab.log_in(a_token(register, None))
        page = tab.page
        tab.go("#/what-ifs", "What if")
        page.get_by_role("link", name=key[-8:]).press("Enter")
        page.get_by_role("heading", level=2, name="Side by side").wait_for()

        row = page.get_by_role("row", name="waiting at the end")
        assert row.locator("td").all_inner_texts() == ["40", "7"]
        page.get_by_text("Too few VMs have ended").wait_for()
        page.get_by_role("img", name="VMs waiting, at the end: as it is 2, what if 2").wait_for()
        assert page.get_by_text(MARKUP).count() >= 2
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        page.evaluate(AXE.read_text())
        found = page.evaluate("async () => (await axe.run()).violations.map(each => each.id)")
        assert found == []
        assert page.evaluate("window.ran") is None
        assert tab.faults == []


@pytest.mark.sqlite
@pytest.mark.parametrize("register_url", ["sqlite"], indirect=True)
def test_one_is_asked_for_by_keyboard_and_cancelled(tab: Tab, register: Registry) -> None:
    tab.log_in(a_token(register, None))
    page = tab.page
    tab.go("#/what-ifs", "What if")
    simulate = page.get_by_role("button", name="Simulate")
    assert simulate.is_disabled()
    page.get_by_label("More hosts").fill("3")
    page.get_by_text("fuga what-if run --hours 24 --add-hosts 3 --like h1 --wait").wait_for()
    simulate.press("Enter")

    page.get_by_role("heading", level=1, name="What if").wait_for()
    page.get_by_role("button", name="Cancel").press("Enter")
    page.get_by_role("button", name="End it").press("Enter")

    page.get_by_text("cancelled", exact=True).wait_for()
    (found,) = register.what_ifs.list().items
    assert (found.state, found.arguments["add_hosts"]["count"]) == ("cancelled", 3)


@pytest.mark.sqlite
@pytest.mark.parametrize("register_url", ["sqlite"], indirect=True)
def test_hosts_of_another_size_and_a_policy_with_parameters_are_asked_for(
    tab: Tab, register: Registry
) -> None:
    tab.log_in(a_token(register, None))
    page = tab.page
    tab.go("#/what-ifs", "What if")
    parameters = page.get_by_label("Parameters")
    assert parameters.is_disabled()
    boxes = [page.get_by_label(name).element_handle() for name in ("More hosts", "Capacity")]
    # In one call: the page moves while its lists arrive.
    tops = page.evaluate("boxes => boxes.map(each => each.getBoundingClientRect().top)", boxes)
    assert len(set(tops)) == 1  # below labels of any length
    page.get_by_label("More hosts").fill("3")
    page.get_by_label("Capacity").fill("vcpus=64, memory_mib=262144")
    page.get_by_role("combobox", name="Policy").select_option("best_fit_drfh")
    parameters.fill("patience=0")
    page.get_by_text(
        "fuga what-if run --hours 24 --add-hosts 3 --capacity vcpus=64 --capacity"
        " memory_mib=262144 --policy best_fit_drfh -p patience=0 --wait"
    ).wait_for()
    page.get_by_role("button", name="Simulate").press("Enter")

    page.get_by_role("heading", level=1, name="What if").wait_for()
    page.get_by_text("by best_fit_drfh (patience=0)").wait_for()
    page.get_by_role("button", name="Cancel").press("Enter")
    page.get_by_role("button", name="End it").press("Enter")
    page.get_by_text("cancelled", exact=True).wait_for()
    (found,) = register.what_ifs.list().items
    assert found.arguments["parameters"] == {"patience": 0}
    added = found.arguments["add_hosts"]
    assert (added["like"], added["capacity"]) == (None, {"vcpus": 64, "memory_mib": 262144})
