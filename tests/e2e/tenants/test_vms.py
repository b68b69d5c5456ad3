"""A tenant looks at its VMs and deletes one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import httpx

from tests.e2e.conftest import Api
from tests.problems import the_problem
from tests.register import add_host


def ask(api: Api, count: int = 2) -> str:
    body = {"vm_type": "small", "count": count, "name": "web"}
    return str(api.tenant_a.post("/v1/requests", json=body).json()["id"])


def test_a_vm_that_waits_has_no_host_and_says_so(api: Api):
    request = ask(api)

    vm = api.tenant_a.get("/v1/vms").json()["items"][0]

    assert vm["request_id"] == request
    assert (vm["desired"], vm["observed"], vm["host"]) == ("running", "absent", None)
    assert api.tenant_a.get(f"/v1/vms/{vm['id']}").json() == vm
    explanation = api.tenant_a.get(f"/v1/vms/{vm['id']}/explanation").json()
    assert explanation["host"] is None
    assert explanation["message"]


def test_a_deleted_vm_lowers_the_count_of_its_request(api: Api):
    request = ask(api, count=3)
    vm = api.tenant_a.get("/v1/vms").json()["items"][0]

    deleted = api.tenant_a.delete(f"/v1/vms/{vm['id']}")

    assert deleted.status_code == 202
    assert deleted.json()["desired"] == "deleted"
    assert api.tenant_a.get(f"/v1/requests/{request}").json()["count"] == 2
    assert len(api.tenant_a.get("/v1/vms").json()["items"]) == 2
    everything = api.tenant_a.get("/v1/vms", params={"include_deleted": "true"}).json()
    assert len(everything["items"]) == 3


def test_another_tenants_vm_does_not_exist(api: Api):
    ask(api)
    vm = api.tenant_a.get("/v1/vms").json()["items"][0]
    path = f"/v1/vms/{vm['id']}"

    nothing = str(uuid.uuid4())
    for method, after in (("GET", ""), ("DELETE", ""), ("GET", "/explanation")):
        theirs = api.tenant_b.request(method, path + after)
        none = api.tenant_b.request(method, f"/v1/vms/{nothing}{after}")
        the_problem(theirs, 404, "not_found")
        assert theirs.text.replace(vm["id"], "ID") == none.text.replace(nothing, "ID")
    assert api.tenant_b.get("/v1/vms").json()["items"] == []
    assert api.tenant_a.get(path).json()["desired"] == "running"


def test_vms_are_found_by_request_tenant_and_name(api: Api):
    request = ask(api)

    def names(**query: str) -> list[str]:
        items = api.operator.get("/v1/vms", params=query).json()["items"]
        return [item["name"] for item in items]

    assert names() == ["web-1", "web-2"]
    assert names(request=request) == ["web-1", "web-2"]
    assert names(request=str(uuid.uuid4())) == []
    assert names(tenant="b") == []
    assert names(name="web-2") == ["web-2"]
    add_host(api.registry)
    assert names(host="h1") == []


def test_a_vm_that_is_gone_is_found_by_name_and_time_and_by_its_tenant_alone(api: Api):
    ask(api)
    gone, stays = api.tenant_a.get("/v1/vms").json()["items"]
    before = datetime.now(UTC) - timedelta(hours=1)
    later = datetime.now(UTC) + timedelta(hours=1)
    api.tenant_a.delete(f"/v1/vms/{gone['id']}")

    def names(caller: httpx.Client, **query: str) -> list[str]:
        items = caller.get("/v1/vms", params=query).json()["items"]
        return [item["name"] for item in items]

    since = before.isoformat()
    assert names(api.tenant_a, deleted_since=since) == [gone["name"]]
    assert names(api.operator, deleted_since=since, name=gone["name"]) == [gone["name"]]
    assert names(api.tenant_a, deleted_since=since, name=stays["name"]) == []
    assert names(api.tenant_a, deleted_since=later.isoformat()) == []
    assert names(api.tenant_b, deleted_since=since) == []
    why = api.tenant_a.get(f"/v1/vms/{gone['id']}/explanation").json()["message"]
    assert why.startswith("it is gone since")
    assert f"fuga events --subject {gone['id']}" in why
    nonsense = api.tenant_a.get("/v1/vms", params={"deleted_since": "2026-02-31T00:00:00Z"})
    the_problem(nonsense, 422, "invalid")
