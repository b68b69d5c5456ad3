"""Budgets over HTTP: set and shown, and what waits for them says so."""

from __future__ import annotations

from controller.rounds.policy_process import PolicyProcess
from tests.e2e.conftest import Api
from tests.e2e.slots import run_slot
from tests.register import add_host


def test_a_request_waits_for_a_spent_budget_and_says_so(api: Api, decider: PolicyProcess) -> None:
    add_host(api.registry, "h1")
    refused = api.tenant_a.patch("/v1/tenants/a/budget", json={"limits": {"vcpus": "0"}})
    put = api.operator.patch("/v1/tenants/a/budget", json={"limits": {"vcpus": "0"}})
    created = api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 2}).json()
    run_slot(api.registry, decider, 1)

    body = api.tenant_a.get(f"/v1/requests/{created['id']}/explanation").json()

    assert (refused.status_code, put.status_code) == (403, 200)
    assert body["placed"] == 0
    assert body["waiting"]["reason"] == "budget"
    assert (
        "the budget of a is 0 vcpus hours a month; it is used up until"
        in (body["waiting"]["message"])
    )
    assert api.tenant_a.get("/v1/tenants/a/budget").json() == put.json()
    assert api.tenant_a.get("/v1/tenants/b/budget").status_code == 404
    assert [each["tenant"] for each in api.operator.get("/v1/budgets").json()["items"]] == ["a"]
    cleared = api.operator.patch("/v1/tenants/a/budget", json={"limits": {"vcpus": None}})
    assert cleared.json()["limits"] == []
    run_slot(api.registry, decider, 2)
    body = api.tenant_a.get(f"/v1/requests/{created['id']}/explanation").json()
    assert body["placed"] == 2, body
