"""Quotas over HTTP: set and shown, refused with the numbers, or waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controller.rest import create_app
from controller.rounds.policy_process import PolicyProcess
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.problems import places, the_problem
from tests.register import add_group, add_host
from tests.servers.http_client import a_client


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
            {
                "tenant": "a",
                "resource": "vcpus",
                "limit": 4,
                "requested": 0,
                "held": 0,
                "by_default": False,
            },
            {
                "tenant": "a",
                "resource": "vms",
                "limit": 2,
                "requested": 0,
                "held": 0,
                "by_default": False,
            },
            {
                "tenant": "research",
                "resource": "vms",
                "limit": 8,
                "requested": 0,
                "held": 0,
                "by_default": False,
            },
        ],
    }
    assert api.tenant_a.get("/v1/tenants/a/quota").json() == made.json()
    body = {"limits": {"vcpus": None, "vms": None}, "over_quota": "wait"}
    left = api.operator.patch("/v1/tenants/a/quota", json=body).json()
    assert ([each["tenant"] for each in left["limits"]], left["over_quota"]) == (
        ["research"],
        "wait",
    )


def test_a_new_tenant_begins_with_the_sites_default_until_its_quota_is_set(api: Api):
    app = create_app(api.registry, default_quota={"vms": 2, "vcpus": 8})
    operator = a_client(app, token=api.registry.tokens.create("operator", None, "o", actor="t")[1])
    assert operator.post("/v1/tenants", json={"name": "new"}).status_code == 201
    assert operator.post("/v1/tenants", json={"name": "some", "is_group": True}).status_code == 201

    def limits(tenant: str = "new") -> list[tuple[str, int, bool]]:
        found = operator.get(f"/v1/tenants/{tenant}/quota").json()["limits"]
        return [(each["resource"], each["limit"], each["by_default"]) for each in found]

    assert limits() == [("vcpus", 8, True), ("vms", 2, True)]
    assert limits("some") == limits("a") == []  # a group, and who was there before
    body = {"vm_type": "small", "count": 3, "tenant": "new"}
    the_problem(operator.post("/v1/requests", json=body), 403, "quota_exceeded")
    operator.patch("/v1/tenants/new/quota", json={"limits": {"vms": 2}})
    assert limits() == [("vcpus", 8, True), ("vms", 2, False)]  # somebody's word from now on
    operator.patch("/v1/tenants/new/quota", json={"limits": {"vms": None, "vcpus": None}})
    assert limits() == []
    assert operator.post("/v1/requests", json=body).status_code == 201
    history = operator.get("/v1/events", params={"subject": "new", "kind": "quota_set"}).json()
    assert history["items"][0]["data"] == {
        "before": {"vcpus": None, "vms": None},
        "limits": {"vcpus": 8, "vms": 2},
        "by_default": True,
    }
    now = datetime.now(UTC)
    with api.registry.history.read_period(now - timedelta(hours=1), now) as past:
        quotas = {each.resource: [limit for _, limit in each.limits] for each in past.quotas}
    assert quotas == {"vcpus": [None, 8, None], "vms": [None, 2, 2, None]}


def test_it_is_told_whom_no_quota_binds(api: Api):
    in_research(api, "a")
    assert api.registry.quotas.unlimited_tenants() == ("a", "b")

    api.operator.patch("/v1/tenants/research/quota", json={"limits": {"vms": 8}})

    assert api.registry.quotas.unlimited_tenants() == ("b",)


def test_a_default_of_what_is_no_resource_is_refused_with_its_name(api: Api):
    app = create_app(api.registry, default_quota={"gpus": 2})
    operator = a_client(app, token=api.registry.tokens.create("operator", None, "o", actor="t")[1])

    problem = the_problem(operator.post("/v1/tenants", json={"name": "new"}), 409, "conflict")

    assert "FUGA_DEFAULT_QUOTA" in problem["detail"]
    assert "gpus" in problem["detail"]
    the_problem(operator.get("/v1/tenants/new"), 404, "not_found")


@pytest.mark.parametrize("named", [True, False])
def test_where_requests_wait_for_a_quota_no_more_than_can_be_kept_are_taken(
    api: Api, monkeypatch: pytest.MonkeyPatch, named: bool
):
    """Requests that are accepted together, and those that are not, as a network is named."""
    monkeypatch.setattr("registry.tenancy.quota_use.MAX_REQUESTED", 10)
    body = {"limits": {"vms": 1}, "over_quota": "wait"}
    assert api.operator.patch("/v1/tenants/a/quota", json=body).status_code == 200

    answers = [ask(api, 4, f"r{each}" if named else None) for each in range(3)]

    assert [each.status_code for each in answers] == [201, 201, 403]
    problem = the_problem(answers[2], 403, "quota_exceeded")
    [excess] = problem["quota"]
    assert (excess["resource"], excess["limit"], excess["used"]) == ("vms", 10, 8)
    assert ask(api, 2).status_code == 201


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
        {"tenant": "a", "resource": "vms", "limit": 4, "used": 3, "requested": 3},
        {"tenant": "research", "resource": "vcpus", "limit": 5, "used": 3, "requested": 3},
    ]
    assert "the quota of a is 4 vms, 3 in use and 3 requested" in refused["detail"]
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
        "the quota of research is 3 vcpus, 3 are in use and 1 more are needed"
        in (waiting["message"])
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
