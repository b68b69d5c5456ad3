"""Spot VMs over REST, as their tenant and the one for whom they end see it."""

from __future__ import annotations

from tests.e2e.conftest import Api
from tests.integration.moves.test_room import DecidesHere, run
from tests.problems import places, the_problem
from tests.register import add_host, run_vm


def test_a_tenant_is_told_when_its_spot_vm_ends_and_not_for_which_request_of_another(api: Api):
    add_host(api.registry, vcpus=2, memory_mib=4096)  # room for one
    body = {"vm_type": "small", "count": 1, "name": "sweep", "spot": True}
    made = api.tenant_b.post("/v1/requests", json=body)
    assert (made.status_code, made.json()["spot"]) == (201, True)
    run(api.registry, 0, decider=DecidesHere())
    [vm] = api.registry.vms.list(tenant="b").items
    run_vm(api.registry, vm.assignment_id)
    api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 40, "name": "web"})
    run(api.registry, 60, decider=DecidesHere(), spot_grace_s=600)

    [reported] = api.tenant_b.get("/v1/vms").json()["items"]

    assert reported["ends_at"] is not None
    assert reported["ending_for"] is None
    [event] = api.tenant_b.get("/v1/events", params={"kind": "spot_ending"}).json()["items"]
    assert event["data"].keys() == {"ends_at", "round"}
    assert (event["from_state"], event["to_state"]) == ("stays", "ending")
    shown = api.tenant_b.get("/v1/rounds/2").json()
    assert shown["spot_preemptions"] == []
    [ending] = api.operator.get("/v1/rounds/2").json()["spot_preemptions"]
    assert (ending["vm"], ending["tenant"], ending["request"]) == ("sweep-1", "a", "web")
    refused = api.tenant_b.post(
        "/v1/requests", json={**body, "name": "two", "rules": {"affinity": {"group": "g"}}}
    )
    assert places(the_problem(refused, 422, "invalid")) == ["#/rules"]
