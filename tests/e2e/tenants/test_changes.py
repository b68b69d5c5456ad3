"""A tenant resizes and labels what it has, and says when it ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem


def ask(api: Api, **changes: Any) -> dict[str, Any]:
    body = {"vm_type": "small", "count": 2, "name": "web", **changes}
    made = api.tenant_a.post("/v1/requests", json=body)
    assert made.status_code == 201, made.text
    request: dict[str, Any] = made.json()
    return request


def vm_names(api: Api, **query: str) -> list[str]:
    return [vm["name"] for vm in api.tenant_a.get("/v1/vms", params=query).json()["items"]]


def test_a_request_grows_and_shrinks(api: Api):
    request = ask(api)
    path = f"/v1/requests/{request['id']}"

    grown = api.tenant_a.patch(path, json={"count": 4})
    first = api.tenant_a.get("/v1/vms").json()["items"][0]["id"]
    shrunk = api.tenant_a.patch(path, json={"count": 2, "remove": [first]})

    assert (grown.status_code, grown.json()["count"]) == (200, 4)
    assert shrunk.json()["count"] == 2
    assert vm_names(api) == ["web-2", "web-3"]
    for body, place in (
        ({"count": 0}, "#/count"),
        ({"count": 2, "remove": [first]}, "#/remove"),
        ({"remove": [first]}, "#/remove"),
        ({"count": 1, "remove": ["web-2"]}, "#/remove/0"),
        ({"colour": "red"}, "#/colour"),
    ):
        assert places(the_problem(api.tenant_a.patch(path, json=body), 422, "invalid")) == [place]
    kinds = api.tenant_a.get("/v1/events", params={"subject": request["id"]}).json()["items"]
    assert [e["data"] for e in kinds if e["kind"] == "request_resized"] == [
        {"from": 2, "to": 4},
        {"from": 4, "to": 2},
    ]


def test_names_are_unique_among_what_a_tenant_has(api: Api):
    ask(api)

    refused = api.tenant_a.post(
        "/v1/requests", json={"vm_type": "small", "count": 1, "name": "web-1"}
    )

    assert "VM with name 'web-1'" in the_problem(refused, 409, "duplicate")["detail"]


def test_labels_are_put_changed_and_looked_for(api: Api):
    request = ask(api, labels={"env": "test"})
    ask(api, name="db", labels={"env": "prod", "tier": "1"})
    [vm, _] = api.tenant_a.get("/v1/vms", params={"request": request["id"]}).json()["items"]

    changed = api.tenant_a.patch(
        f"/v1/requests/{request['id']}", json={"labels": {"env": None, "owner": "me@x"}}
    )
    api.tenant_a.patch(f"/v1/vms/{vm['id']}", json={"labels": {"tier": "1"}})

    assert request["labels"] == {"env": "test"}
    assert changed.json()["labels"] == {"owner": "me@x"}
    found = api.tenant_a.get("/v1/requests", params={"label": "env=prod"}).json()["items"]
    assert [each["name"] for each in found] == ["db"]
    assert vm_names(api, label="tier=1") == ["web-1", "db-1", "db-2"]
    assert vm_names(api, label="env=test", state="absent") == ["web-1", "web-2"]
    assert vm_names(api, label="env=test", state="running") == []
    both = api.tenant_a.get("/v1/vms?label=tier=1&label=env=test").json()["items"]
    assert [each["name"] for each in both] == ["web-1"]
    the_problem(api.tenant_a.get("/v1/vms", params={"label": "env"}), 422, "invalid")


def test_a_request_says_when_it_ends(api: Api):
    request = ask(api, ttl_s=7200)
    path = f"/v1/requests/{request['id']}"

    later = api.tenant_a.patch(path, json={"ttl_s": 86_400}).json()
    never = api.tenant_a.patch(path, json={"ttl_s": "never"}).json()

    made, ends = (datetime.fromisoformat(request[key]) for key in ("created_at", "expires_at"))
    assert (ends - made).total_seconds() == 7200
    assert datetime.fromisoformat(later["expires_at"]) > ends
    assert never["expires_at"] is None
    assert ask(api, name="db")["expires_at"] is None
    for wrong in (0, -1, "2h", 10**12):
        refused = api.tenant_a.patch(path, json={"ttl_s": wrong})
        assert the_problem(refused, 422, "invalid")


@pytest.mark.parametrize("body", [{"count": 1}, {"labels": {"a": "b"}}, {"ttl_s": 60}])
def test_another_tenants_request_does_not_change(api: Api, body: dict[str, Any]):
    request = ask(api)

    refused = api.tenant_b.patch(f"/v1/requests/{request['id']}", json=body)

    the_problem(refused, 404, "not_found")
    assert api.tenant_a.get(f"/v1/requests/{request['id']}").json() == request
