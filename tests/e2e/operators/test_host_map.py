"""Operators read every host at once, in columns."""

from __future__ import annotations

from datetime import timedelta

from registry import HostAdminEvent
from tests.e2e.conftest import Api
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.register import ACTOR, add_host, add_request, now, place, take_lease


def test_the_map_has_every_host_with_what_it_holds_and_for_whom(api: Api) -> None:
    registry = api.registry
    small = {"vcpus": 1, "memory_mib": 3072, "disk_gib": 15}
    first = add_host(registry, "h1", labels=["zone=east", "ssd"])
    second = add_host(registry, "h2", labels=["zone=east"])
    add_host(registry, "h3", up=False)
    gone = add_host(registry, "h4")
    registry.hosts.change_admin(gone.name, HostAdminEvent.RETIRE, actor=ACTOR)
    registry.hosts.change_admin(second.name, HostAdminEvent.DRAIN, actor=ACTOR)
    lease = take_lease(registry)
    place(registry, add_request(registry, 2), first, 2, lease=lease)
    place(registry, add_request(registry, 3, tenant="b"), first, 3, lease=lease)

    body = api.operator.get("/v1/host-map").json()

    assert body["names"] == ["h1", "h2", "h3"]
    assert body["admin"] == ["active", "draining", "active"]
    assert body["health"] == ["up", "up", "enrolling"]
    assert body["closed"] == [None, None, None]
    assert [[body["labels"][at] for at in each] for each in body["labels_of"]] == [
        ["ssd", "zone=east"],
        ["zone=east"],
        [],
    ]
    assert [[(body["tenants"][at], vms) for at, vms in each] for each in body["held_by"]] == [
        [("b", 3), ("a", 2)],
        [],
        [],
    ]
    assert {each["resource"]: each["committed"] for each in body["resources"]} == {
        name: [5 * amount, 0, 0] for name, amount in small.items()
    }
    assert body["resources"][0]["capacity"] == [16, 16, 0]


def test_the_map_says_why_a_host_that_is_up_gets_no_vms(api: Api, raw: RawSql) -> None:
    for name in ("h1", "h2", "h3", "h4"):
        add_host(api.registry, name)
    later, before = now() + timedelta(hours=1), now() - timedelta(hours=1)
    raw.run("UPDATE hosts SET backoff_until = ? WHERE name = 'h1'", later)
    raw.run("UPDATE hosts SET backoff_until = ? WHERE name = 'h2'", before)
    raw.run("UPDATE hosts SET pool_silent_since = ? WHERE name = 'h3'", before)
    raw.run("UPDATE hosts SET returning_since = ? WHERE name = 'h4'", before)

    body = api.operator.get("/v1/host-map").json()

    assert body["closed"] == ["held_back", None, "pool_silent", "returning"]


def test_the_map_is_for_operators(api: Api) -> None:
    the_problem(api.tenant_a.get("/v1/host-map"), 403, "forbidden")
