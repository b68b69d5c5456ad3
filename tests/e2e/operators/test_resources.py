"""An operator adds a resource of its own: hosts offer it, types ask for it, rounds count it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rounds.policy_process import PolicyProcess
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import add_host

GPU = {"name": "gpu", "unit": "GPUs"}
WITH_GPU = {"vcpus": 1, "memory_mib": 1024, "disk_gib": 1, "gpu": 1}


def test_vms_that_want_a_resource_go_to_hosts_that_offer_it(
    api: Api, decider: PolicyProcess
) -> None:
    for name in ("h1", "h2"):
        add_host(api.registry, name)

    made = api.operator.post("/v1/resources", json=GPU)
    offered = api.operator.patch("/v1/hosts/h2", json={"overrides": {"gpu": 2}})
    typed = api.operator.post("/v1/vm-types", json={"name": "gpu", "resources": WITH_GPU})
    requested = api.tenant_a.post("/v1/requests", json={"vm_type": "gpu", "count": 3})
    run_slot(api.registry, decider)

    assert [each.status_code for each in (made, offered, typed, requested)] == [201, 200, 201, 201]
    placed = api.operator.get("/v1/vms").json()["items"]
    assert [each["host"] for each in placed if each["host"]] == ["h2", "h2"]
    left = api.tenant_a.get(f"/v1/requests/{requested.json()['id']}/explanation").json()
    assert "gpu" in str(left)


def test_a_tenant_may_not_add_resources(api: Api) -> None:
    the_problem(api.tenant_a.post("/v1/resources", json=GPU), 403, "forbidden")


def test_a_resource_is_added_once(api: Api) -> None:
    api.operator.post("/v1/resources", json=GPU)

    the_problem(api.operator.post("/v1/resources", json=GPU), 409, "duplicate")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "vms"}, "#/name"),
        ({"name": "net_mbps"}, "#/name"),
        ({"name": "a b"}, "#/name"),
        ({"unit": ""}, "#/unit"),
        ({"unit": "x" * 33}, "#/unit"),
        ({"unit": "\u202e"}, "#/unit"),
    ],
)
def test_what_can_be_no_resource_is_pointed_at(api: Api, change: Any, place: str) -> None:
    answer = api.operator.post("/v1/resources", json=GPU | change)

    assert places(the_problem(answer, 422, "invalid")) == [place]


def test_there_are_at_most_thirty_two(api: Api) -> None:
    for number in range(29):
        api.operator.post("/v1/resources", json={"name": f"r{number}"})

    problem = the_problem(api.operator.post("/v1/resources", json=GPU), 422, "invalid")

    assert "at most 32 resources" in str(problem)
    assert len(api.operator.get("/v1/resources").json()["items"]) == 32
