"""An operator has a host fenced that is down, or says that it is off."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Api
from tests.problems import the_problem
from tests.register import add_host, add_request, place, run_vm

FENCE = "/v1/hosts/h1/fence"


def a_host_that_is_down(api: Api) -> dict[str, Any]:
    host = add_host(api.registry, "h1", fence_target="bmc-1")
    (key,) = place(api.registry, add_request(api.registry), host).assignment_ids
    run_vm(api.registry, key)
    api.registry.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
    return api.operator.get("/v1/hosts/h1").json()


def test_a_host_that_is_down_is_asked_to_be_fenced(api: Api):
    host = a_host_that_is_down(api)
    assert (host["fence_target"], host["fence"], host["returning_since"]) == ("bmc-1", None, None)

    answer = api.operator.post(FENCE, json={})

    assert answer.status_code == 202
    assert answer.json()["fence"]["state"] == "pending"
    assert api.operator.post(FENCE, json={}).json()["fence"] == answer.json()["fence"]


def test_an_operators_word_that_it_is_off_lets_its_vms_be_placed_elsewhere(api: Api):
    a_host_that_is_down(api)

    answer = api.operator.post(FENCE, json={"by_hand": True})

    assert answer.json()["fence"]["state"] == "fenced"
    assert {each["committed"] for each in answer.json()["inventories"]} == {0}
    [vm] = api.tenant_a.get("/v1/vms").json()["items"]
    assert (vm["host"], vm["observed"]) == (None, "absent")


def test_only_a_host_that_is_down_and_has_a_target_is_fenced(api: Api):
    add_host(api.registry, "h1")
    problem = the_problem(api.operator.post(FENCE, json={}), 409, "conflict")
    assert "it is up" in problem["detail"]

    host = api.registry.hosts.get("h1")
    api.registry.hosts.record_miss(host.id, "timeout", unreachable_after=1, down_after=1)
    problem = the_problem(api.operator.post(FENCE, json={}), 409, "conflict")
    assert "--fence-target" in problem["detail"]


def test_a_fence_target_is_set_and_taken_back(api: Api):
    add_host(api.registry, "h1")

    changed = api.operator.patch("/v1/hosts/h1", json={"fence_target": "bmc-1"})
    assert changed.json()["fence_target"] == "bmc-1"
    for wrong in ("--force", "bmc-1 ", " bmc-1"):
        refused = api.operator.patch("/v1/hosts/h1", json={"fence_target": wrong})
        assert refused.status_code == 422
    the_problem(refused, 422, "invalid")
    cleared = api.operator.patch("/v1/hosts/h1", json={"fence_target": ""})
    assert cleared.json()["fence_target"] is None


def test_tenants_fence_nobody(api: Api):
    a_host_that_is_down(api)

    the_problem(api.tenant_a.post(FENCE, json={"by_hand": True}), 403, "forbidden")
    the_problem(api.operator.post("/v1/hosts/h9/fence", json={}), 404, "not_found")
