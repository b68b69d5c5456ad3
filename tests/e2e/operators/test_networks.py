"""Operators make networks; tenants put their VMs on them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.rounds.policy_process import PolicyProcess
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import add_host

LAN: dict[str, Any] = {
    "name": "lan",
    "default": {"kind": "bridge", "name": "br0"},
    "hosts": {"h1": {"name": "lan-on-h1"}},
    "subnet": {
        "cidr": "10.0.0.0/24",
        "gateway": "10.0.0.1",
        "dns": ["192.0.2.53"],
        "excluded": ["10.0.0.2-10.0.0.99"],
    },
}


def add(api: Api, **changes: Any) -> httpx.Response:
    return api.operator.post("/v1/networks", json={**LAN, **changes})


def test_an_operator_adds_a_network_and_a_tenant_sees_what_concerns_it(api: Api):
    add_host(api.registry, "h1")

    made = add(api)

    assert made.status_code == 201
    network = made.json()
    assert network["hosts"] == {"h1": {"kind": "network", "name": "lan-on-h1"}}
    assert network["subnet"] == LAN["subnet"]
    assert (network["addresses"], network["addresses_used"]) == (155, 0)
    assert api.operator.get("/v1/networks").json() == {"items": [network], "next": None}
    shown = {**network, "default": None, "hosts": {}}
    assert api.tenant_a.get("/v1/networks/lan").json() == shown
    assert api.tenant_a.get("/v1/networks").json()["items"] == [shown]


def test_only_operators_change_networks(api: Api):
    add(api, hosts={})

    the_problem(api.tenant_a.post("/v1/networks", json=LAN), 403, "forbidden")
    the_problem(api.tenant_a.delete("/v1/networks/lan"), 403, "forbidden")
    change = {"hosts": {"h1": None}}
    the_problem(api.tenant_a.patch("/v1/networks/lan", json=change), 403, "forbidden")


def test_hosts_are_mapped_and_unmapped(api: Api):
    add_host(api.registry, "h1")
    add(api, hosts={})

    source = {"kind": "bridge", "name": "br7"}
    mapped = api.operator.patch("/v1/networks/lan", json={"hosts": {"h1": source}})
    unmapped = api.operator.patch("/v1/networks/lan", json={"hosts": {"h1": None}})

    assert mapped.json()["hosts"] == {"h1": source}
    assert unmapped.json()["hosts"] == {}
    unknown = api.operator.patch("/v1/networks/lan", json={"hosts": {"h9": source}})
    assert places(the_problem(unknown, 422, "invalid")) == ["#/hosts"]
    nowhere = api.operator.patch("/v1/networks/wan", json={"hosts": {"h1": source}})
    the_problem(nowhere, 404, "not_found")


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("#/subnet/cidr", {"subnet": {"cidr": "10.0.0.0/33"}}),
        ("#/subnet/gateway", {"subnet": {"cidr": "10.0.0.0/24", "gateway": "10.9.9.9"}}),
        ("#/default", {"default": None, "hosts": {}}),
        ("#/hosts", {"hosts": {"h9": {"name": "x"}}}),
        ("#/default/name", {"default": {"name": "a b"}}),
    ],
)
def test_what_is_no_network_is_pointed_at(api: Api, place: str, changes: dict[str, Any]):
    add_host(api.registry, "h1")

    assert places(the_problem(add(api, **changes), 422, "invalid")) == [place]


def test_a_request_names_its_network_which_then_stays(api: Api):
    add(api, hosts={})
    body = {"vm_type": "small", "count": 1, "network": "lan"}

    request = api.tenant_a.post("/v1/requests", json=body).json()

    assert request["network"] == "lan"
    [vm] = api.tenant_a.get("/v1/vms").json()["items"]
    assert (vm["network"], vm["address"]) == ("lan", None)
    assert vm["mac"].startswith("02:")
    the_problem(api.operator.delete("/v1/networks/lan"), 409, "conflict")
    wrong = api.tenant_a.post("/v1/requests", json={**body, "network": "wan"})
    assert places(the_problem(wrong, 422, "invalid")) == ["#/network"]

    api.tenant_a.delete(f"/v1/requests/{request['id']}")
    assert api.operator.delete("/v1/networks/lan").json()["name"] == "lan"
    the_problem(api.operator.get("/v1/networks/lan"), 404, "not_found")


def test_when_addresses_run_out_requests_wait_and_say_so(api: Api, decider: PolicyProcess):
    add_host(api.registry, "h1")
    small = {"cidr": "10.0.0.0/29", "gateway": "10.0.0.1", "excluded": ["10.0.0.2-10.0.0.4"]}
    add(api, hosts={}, subnet=small)

    def ask(client: httpx.Client, count: int) -> str:
        body = {"vm_type": "small", "count": count, "network": "lan"}
        return str(client.post("/v1/requests", json=body).json()["id"])

    first, second = ask(api.tenant_a, 3), ask(api.tenant_b, 1)
    run_slot(api.registry, decider, 1)
    run_slot(api.registry, decider, 2)

    vms = api.operator.get("/v1/vms").json()["items"]
    assert sorted(vm["address"] for vm in vms if vm["address"]) == ["10.0.0.5", "10.0.0.6"]
    explained = [
        client.get(f"/v1/requests/{request}/explanation").json()
        for client, request in ((api.tenant_a, first), (api.tenant_b, second))
    ]
    waiting = [each["waiting"] for each in explained if each["waiting"] is not None]
    assert sum(each["count"] for each in waiting) == 2
    assert {each["reason"] for each in waiting} == {"no_address"}
    for each in waiting:
        assert each["message"].endswith("its network has no free addresses (network lan)")


def test_a_network_of_another_tenant_does_not_exist(api: Api):
    assert add(api, hosts={}, tenant="a").status_code == 201
    body = {"vm_type": "small", "count": 1, "network": "lan"}
    of_none = {**body, "network": "wan"}

    there, hidden = api.tenant_a.get("/v1/networks/lan"), api.tenant_b.get("/v1/networks/lan")
    requested = api.tenant_b.post("/v1/requests", json=body)
    asked_of_none = api.tenant_b.post("/v1/requests", json=of_none)

    assert (there.json()["tenant"], there.json()["isolated"]) == ("a", False)
    the_problem(hidden, 404, "not_found")
    assert "etag" not in hidden.headers
    assert api.tenant_b.get("/v1/networks").json()["items"] == []
    shown = [the_problem(each, 422, "invalid") for each in (requested, asked_of_none)]
    assert str(shown[0]).replace("lan", "wan") == str(shown[1])
    assert api.tenant_a.post("/v1/requests", json=body).status_code == 201
    for_b = api.operator.post("/v1/requests", json={**body, "tenant": "b"})
    the_problem(for_b, 422, "invalid")


def test_a_request_does_not_grow_on_a_network_that_was_taken_back(api: Api):
    add(api, hosts={}, offered_to=["a"])
    body = {"vm_type": "small", "count": 2, "network": "lan"}
    path = f"/v1/requests/{api.tenant_a.post('/v1/requests', json=body).json()['id']}"
    assert api.tenant_a.patch(path, json={"count": 3}).status_code == 200

    api.operator.patch("/v1/networks/lan", json={"offered_to": ["b"]})
    grown = api.tenant_a.patch(path, json={"count": 4})

    assert "not offered" in the_problem(grown, 409, "conflict")["detail"]
    assert api.tenant_a.get(path).json()["count"] == 3
    assert api.tenant_a.patch(path, json={"count": 1}).status_code == 200


def test_operators_say_who_may_use_a_network_and_what_its_guests_may_do(api: Api):
    made = add(api, hosts={}, offered_to=["a"]).json()

    assert (made["tenant"], made["offered_to"]) == (None, ["a"])
    assert (made["isolated"], made["filtered"]) == (True, True)
    assert api.tenant_a.get("/v1/networks/lan").json()["offered_to"] is None
    change = {"offered_to": None, "isolated": False, "filtered": False}
    changed = api.operator.patch("/v1/networks/lan", json=change).json()
    assert {key: changed[key] for key in change} == change
    assert api.tenant_b.get("/v1/networks/lan").status_code == 200
    kept = api.operator.patch("/v1/networks/lan", json={"isolated": True}).json()
    assert (kept["offered_to"], kept["isolated"], kept["filtered"]) == (None, True, False)
    the_problem(api.operator.patch("/v1/networks/lan", json={}), 422, "invalid")
    wrong = api.operator.patch("/v1/networks/lan", json={"offered_to": ["nobody"]})
    assert places(the_problem(wrong, 422, "invalid")) == ["#/offered_to"]
    both = add(api, hosts={}, name="wan", tenant="a", offered_to=["b"])
    assert places(the_problem(both, 422, "invalid")) == ["#/offered_to"]
