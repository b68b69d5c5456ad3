"""Quotas over HTTP: set and shown, refused with the numbers, or waited for."""

from __future__ import annotations

import pytest

from controller.policy_process import PolicyProcess
from controller.rest import create_app
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.http_client import a_client
from tests.problems import places, the_problem
from tests.register import add_group, add_host


def ask(api: Api, count: int, name: str | None = None):
    return api.tenant_a.post(
        "/v1/requests", json={"vm_type": "small", "count": count, "name": name}
    )


def in_research(api: Api, *tenants: str) -> None:
    add_group(api.registry, "research")
    for tenant in tenants:
        api.operator.patch(f"/v1/tenants/{tenant}", json={"parent": "research"})


def test_a_quota_is_set_shown_and_taken_back(api: Api):
    in_research(api, "a")
    api.operator.patch("/v1/tenants/research/quota", json={"limits": {"vms": 8}})

    made = api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vcpus": 4, "vms": 2}})

    assert made.status_code == 200
    assert made.json() == {
        "tenant": "a",
        "over_quota": None,
        "limits": [
            {"tenant": "a", "resource": "vcpus", "limit": 4, "asked": 0, "held": 0},
            {"tenant": "a", "resource": "vms", "limit": 2, "asked": 0, "held": 0},
            {"tenant": "research", "resource": "vms", "limit": 8, "asked": 0, "held": 0},
        ],
    }
    assert api.tenant_a.get("/v1/tenants/a/quota").json() == made.json()
    body = {"limits": {"vcpus": None, "vms": None}, "over_quota": "wait"}
    left = api.operator.patch("/v1/tenants/a/quota", json=body).json()
    assert ([each["tenant"] for each in left["limits"]], left["over_quota"]) == (
        ["research"],
        "wait",
    )


def test_a_tenant_sees_its_own_quota_and_sets_none(api: Api):
    the_problem(api.tenant_a.get("/v1/tenants/b/quota"), 404, "not_found")
    body = {"limits": {"vms": 100}}
    the_problem(api.tenant_a.patch("/v1/tenants/a/quota", json=body), 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"limits": {"gpu": 1}}, "#/limits/gpu"),
        ({"limits": {"vms": -1}}, "#/limits/vms"),
        ({"over_quota": "perhaps"}, "#/over_quota"),
    ],
)
def test_a_quota_that_cannot_be_is_pointed_at(api: Api, body, place):
    answer = api.operator.patch("/v1/tenants/a/quota", json=body)

    assert places(the_problem(answer, 422, "invalid")) == [place]


def test_what_is_above_a_quota_is_refused_with_the_numbers(api: Api):
    in_research(api, "a", "b")
    api.operator.patch("/v1/tenants/research/quota", json={"limits": {"vcpus": 5}})
    api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vms": 4}})
    assert ask(api, 3).status_code == 201

    refused = the_problem(ask(api, 3), 403, "quota_exceeded")

    assert refused["quota"] == [
        {"tenant": "a", "resource": "vms", "limit": 4, "used": 3, "asked": 3},
        {"tenant": "research", "resource": "vcpus", "limit": 5, "used": 3, "asked": 3},
    ]
    assert "the quota of a is 4 vms, 3 are used and 3 asked for" in refused["detail"]
    assert len(api.tenant_a.get("/v1/requests").json()["items"]) == 1


def test_a_refusal_may_be_tried_again_with_the_same_key(api: Api):
    api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vms": 1}})
    key, body = {"Idempotency-Key": "once"}, {"vm_type": "small", "count": 2}
    the_problem(api.tenant_a.post("/v1/requests", json=body, headers=key), 403, "quota_exceeded")
    api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vms": 2}})

    assert api.tenant_a.post("/v1/requests", json=body, headers=key).status_code == 201


def test_where_requests_wait_the_round_keeps_the_quota_and_says_so(
    api: Api, decider: PolicyProcess
):
    add_host(api.registry, vcpus=16)
    in_research(api, "a", "b")
    quota = {"limits": {"vcpus": 3}, "over_quota": "wait"}
    api.operator.patch("/v1/tenants/research/quota", json=quota)
    request = ask(api, 5, "web").json()

    run_slot(api.registry, decider, 1)
    waiting = api.tenant_a.get(f"/v1/requests/{request['id']}/explanation").json()["waiting"]
    run_slot(api.registry, decider, 2)
    api.operator.patch("/v1/tenants/research/quota", json={"limits": {"vcpus": 4}})
    run_slot(api.registry, decider, 3)

    assert (waiting["count"], waiting["reason"]) == (2, "quota")
    assert waiting["quotas"] == [
        {"tenant": "research", "resource": "vcpus", "limit": 3, "used": 3, "needed": 1}
    ]
    assert waiting["shortages"] == []
    assert (
        "the quota of research is 3 vcpus, 3 are held and 1 more are needed" in (waiting["message"])
    )
    assert api.tenant_a.get(f"/v1/requests/{request['id']}").json()["vms_placed"] == 4
    assert [each["placed"] for each in api.operator.get("/v1/rounds").json()["items"]] == [1, 0, 3]
    assert api.operator.post("/v1/rounds/1/replay").json()["identical"] is True


def test_a_quota_below_what_is_held_ends_nothing_and_stops_new_vms(
    api: Api, decider: PolicyProcess
):
    add_host(api.registry, vcpus=16)
    ask(api, 3, "web")
    run_slot(api.registry, decider, 1)
    quota = {"limits": {"vms": 1}, "over_quota": "wait"}

    lowered = api.operator.patch("/v1/tenants/a/quota", json=quota).json()
    ask(api, 1, "more")
    run_slot(api.registry, decider, 2)

    assert lowered["limits"][0]["held"] == 3
    placed = {
        it["name"]: it["vms_placed"] for it in api.tenant_a.get("/v1/requests").json()["items"]
    }
    assert placed == {"web": 3, "more": 0}


def test_the_installation_says_what_becomes_of_requests_where_nobody_else_does(api: Api):
    app = create_app(api.registry, over_quota="wait")
    tenant = a_client(app, token=api.registry.tokens.create("tenant", "a", "t2", actor="x")[1])
    api.operator.patch("/v1/tenants/a/quota", json={"limits": {"vms": 1}})

    assert tenant.post("/v1/requests", json={"vm_type": "small", "count": 2}).status_code == 201
    the_problem(ask(api, 2), 403, "quota_exceeded")
