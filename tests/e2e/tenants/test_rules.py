"""Tenants say where their VMs may be; the slot keeps it, and says so where it cannot."""

from __future__ import annotations

from typing import Any

from controller.rounds.policy_process import PolicyProcess
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import add_host


def ask(api: Api, count: int, rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {"vm_type": "small", "count": count, "rules": rules, **fields}
    answer = api.tenant_a.post("/v1/requests", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def hosts_of(api: Api, request: dict[str, Any]) -> list[str]:
    vms = api.tenant_a.get("/v1/vms", params={"request": request["id"]}).json()["items"]
    return sorted(vm["host"] for vm in vms if vm["host"])


def waiting(api: Api, request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = api.tenant_a.get(f"/v1/requests/{request['id']}").json()["waiting"]
    return found


def test_vms_of_a_group_keep_apart_over_slots(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    add_host(api.registry, "h2")
    group = {"anti_affinity": {"group": "web"}}
    first = ask(api, 1, group)
    run_slot(api.registry, decider, 1)

    second = ask(api, 2, group)
    run_slot(api.registry, decider, 2)

    assert len(hosts_of(api, first)) == len(hosts_of(api, second)) == 1
    assert hosts_of(api, first) != hosts_of(api, second)
    assert waiting(api, second)["reason"] == "anti_affinity"
    assert waiting(api, second)["count"] == 1
    [_, latest] = reversed(api.operator.get("/v1/rounds").json()["items"])
    replay = api.operator.post(f"/v1/rounds/{latest['number']}/replay").json()
    assert replay["identical"], replay


def test_vms_of_a_group_stay_together_over_slots(api: Api, decider: PolicyProcess):
    for name in ("h1", "h2"):
        add_host(api.registry, name, vcpus=2)
    group = {"affinity": {"group": "cache"}}
    first = ask(api, 1, group)
    run_slot(api.registry, decider, 1)
    second = ask(api, 2, group)
    run_slot(api.registry, decider, 2)

    assert hosts_of(api, second) == hosts_of(api, first)
    assert waiting(api, second)["reason"] == "affinity"


def test_labels_zones_and_spreads(api: Api, decider: PolicyProcess):
    add_host(api.registry, "e1", labels=("zone=east", "ssd"))
    add_host(api.registry, "e2", labels=("zone=east", "old"))
    add_host(api.registry, "w1", labels=("zone=west",), vcpus=1)
    here = ask(api, 1, {"zone": "east", "forbids": ["ssd"]})
    rather = ask(api, 2, {"prefers": ["ssd"]})
    spread = ask(api, 4, {"spread": "zone"})
    nowhere = ask(api, 1, {"zone": "north"})

    run_slot(api.registry, decider)

    assert hosts_of(api, here) == [api.alias("e2")]
    assert hosts_of(api, rather) == [api.alias("e1")] * 2
    assert len(hosts_of(api, spread)) == 3
    assert waiting(api, spread)["reason"] in ("no_room", "zone_full")
    assert waiting(api, nowhere)["reason"] == "no_eligible_host"


def test_rules_that_cannot_be_kept_are_refused(api: Api):
    ask(api, 1, {"affinity": {"group": "web"}})

    other = api.tenant_a.post(
        "/v1/requests",
        json={"vm_type": "small", "count": 1, "rules": {"anti_affinity": {"group": "web"}}},
    )
    unknown = api.tenant_a.post(
        "/v1/requests", json={"vm_type": "small", "count": 1, "rules": {"near": "x"}}
    )
    spread = api.tenant_a.post(
        "/v1/requests",
        json={"vm_type": "small", "count": 2, "rules": {"spread": "zone", "zone": "east"}},
    )

    problem = the_problem(other, 409, "conflict")
    assert "requested is anti-affinity" in problem["detail"]
    assert places(the_problem(unknown, 422, "invalid")) == ["#/rules/near"]
    assert places(the_problem(spread, 422, "invalid")) == ["#/rules/spread"]


def test_groups_of_vms_are_listed_with_their_requests_and_hosts(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    ask(api, 2, {"anti_affinity": {"group": "web", "soft": True}}, name="web")
    ask(api, 1, {"affinity": {"group": "cache"}}, name="cache")
    gone = ask(api, 1, {"affinity": {"group": "gone"}}, name="gone")
    api.tenant_a.delete(f"/v1/requests/{gone['id']}")
    run_slot(api.registry, decider, 1)

    web, cache = api.tenant_a.get("/v1/vm-groups").json()["items"]

    assert (web["name"], web["tenant"], web["rule"], web["soft"]) == (
        "web",
        "a",
        "anti_affinity",
        True,
    )
    assert (web["requests"], web["vms"], web["hosts"]) == (["web"], 2, {api.alias("h1"): 2})
    assert (cache["rule"], cache["soft"], cache["vms"]) == ("affinity", False, 1)
    assert api.tenant_b.get("/v1/vm-groups").json()["items"] == []
    first = api.operator.get("/v1/vm-groups", params={"limit": 1}).json()
    rest = api.operator.get("/v1/vm-groups", params={"cursor": first["next"]}).json()
    assert [each["name"] for each in first["items"] + rest["items"]] == ["web", "cache"]
