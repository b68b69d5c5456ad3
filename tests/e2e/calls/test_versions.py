"""Changing a thing only while it still is what was read: ETag and If-Match."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from registry import HostAdminEvent
from registry.hosts import Host
from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import ACTOR, a_report, add_host


def tag(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["ETag"])


def test_an_update_of_what_was_read_is_made_and_a_second_one_is_not(api: Api):
    read = tag(api.operator, "/v1/tenants/a")

    first = api.operator.patch("/v1/tenants/a", json={"weight": 2}, headers={"If-Match": read})
    second = api.operator.patch("/v1/tenants/a", json={"weight": 3}, headers={"If-Match": read})

    assert first.json()["weight"] == 2
    problem = the_problem(second, 412, "version_mismatch")
    assert (
        problem["current_version"] == second.headers["ETag"] == tag(api.operator, "/v1/tenants/a")
    )
    assert api.operator.get("/v1/tenants/a").json()["weight"] == 2
    again = {"If-Match": problem["current_version"]}
    assert api.operator.patch("/v1/tenants/a", json={"weight": 3}, headers=again).is_success


def test_one_thing_is_read_once_for_answer_and_version(api: Api, monkeypatch: pytest.MonkeyPatch):
    add_host(api.registry, "h1")
    reads: list[str] = []
    read_one = api.registry.hosts.get

    def counted(name: str) -> Host:
        reads.append(name)
        return read_one(name)

    monkeypatch.setattr(api.registry.hosts, "get", counted)

    assert tag(api.operator, "/v1/hosts/h1")
    assert reads == ["h1"]


def test_a_network_is_changed_only_as_it_was_read(api: Api):
    lan = {"name": "lan", "default": {"kind": "bridge", "name": "br0"}}
    made = api.operator.post("/v1/networks", json=lan)
    assert made.status_code == 201, made.text
    read = {"If-Match": tag(api.operator, "/v1/networks/lan")}

    first = api.operator.patch("/v1/networks/lan", json={"isolated": False}, headers=read)
    second = api.operator.patch("/v1/networks/lan", json={"isolated": True}, headers=read)

    assert first.status_code == 200, first.text
    the_problem(second, 412, "version_mismatch")


def test_without_if_match_the_last_one_wins(api: Api):
    assert api.operator.patch("/v1/tenants/a", json={"weight": 2}).is_success
    assert api.operator.patch("/v1/tenants/a", json={"weight": 3}).json()["weight"] == 3


def test_any_version_and_one_of_several_will_do(api: Api):
    read = tag(api.operator, "/v1/tenants/a")

    for given in ("*", f'"other", {read}', f"W/{read}"):
        answer = api.operator.patch(
            "/v1/tenants/a", json={"weight": 1}, headers={"If-Match": given}
        )
        assert answer.is_success, answer.text


@pytest.mark.parametrize("given", ["", "abc", '"', '"a" "b"', '"a",'])
def test_what_is_no_version_is_refused(api: Api, given: str):
    answer = api.operator.patch("/v1/tenants/a", json={"weight": 2}, headers={"If-Match": given})

    assert places(the_problem(answer, 422, "invalid")) == ["If-Match"]
    assert api.operator.get("/v1/tenants/a").json()["weight"] == 1


def test_where_nothing_has_a_version_if_match_is_refused(api: Api):
    body = {"vm_type": "small", "count": 1}
    answer = api.tenant_a.post("/v1/requests", json=body, headers={"If-Match": '"x"'})

    the_problem(answer, 422, "invalid")
    assert api.tenant_a.get("/v1/requests").json()["items"] == []


def test_a_host_keeps_its_version_whatever_the_monitor_sees(api: Api):
    host = add_host(api.registry, "h1")
    read = tag(api.operator, "/v1/hosts/h1")
    api.registry.hosts.record_report(host.id, a_report(vcpus=8))
    api.registry.hosts.record_miss(host.id, "gone", unreachable_after=1, down_after=9)

    assert tag(api.operator, "/v1/hosts/h1") == read
    api.registry.hosts.apply("h1", HostAdminEvent.DRAIN, actor=ACTOR)
    stale = api.operator.patch("/v1/hosts/h1", json={"labels": ["ssd"]}, headers={"If-Match": read})
    the_problem(stale, 412, "version_mismatch")
    assert api.operator.get("/v1/hosts/h1").json()["labels"] == []
    the_problem(
        api.operator.delete("/v1/hosts/h1", headers={"If-Match": read}), 412, "version_mismatch"
    )


def test_a_change_in_two_steps_is_judged_once(api: Api):
    add_host(api.registry, "h1")
    given = {"If-Match": tag(api.operator, "/v1/hosts/h1")}

    answer = api.operator.patch(
        "/v1/hosts/h1", json={"admin": "draining", "labels": ["ssd"]}, headers=given
    )

    assert (answer.json()["admin"], answer.json()["labels"]) == ("draining", ["ssd"])


def test_a_request_and_a_vm_are_deleted_only_as_they_were_read(api: Api):
    request = api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 2}).json()
    path = f"/v1/requests/{request['id']}"
    read = tag(api.tenant_a, path)
    vm = api.tenant_a.get("/v1/vms").json()["items"][0]["id"]
    given = {"If-Match": tag(api.tenant_a, f"/v1/vms/{vm}")}

    assert api.tenant_a.delete(f"/v1/vms/{vm}", headers=given).status_code == 202

    the_problem(api.tenant_a.delete(f"/v1/vms/{vm}", headers=given), 412, "version_mismatch")
    the_problem(api.tenant_a.delete(path, headers={"If-Match": read}), 412, "version_mismatch")
    assert api.tenant_a.delete(path, headers={"If-Match": tag(api.tenant_a, path)}).is_success


def test_versions_tell_nothing_of_what_is_another_tenants(api: Api):
    request = api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1}).json()
    path = f"/v1/requests/{request['id']}"

    hidden = api.tenant_b.get(path)
    refused = api.tenant_b.delete(path, headers={"If-Match": '"guess"'})

    the_problem(hidden, 404, "not_found")
    assert "ETag" not in hidden.headers
    the_problem(refused, 404, "not_found")
    assert "ETag" not in refused.headers


def test_of_many_that_change_what_they_read_at_once_one_does(api: Api):
    read = tag(api.operator, "/v1/tenants/a")
    ready = threading.Barrier(6)

    def change(weight: int) -> int:
        ready.wait(60)
        answer = api.operator.patch(
            "/v1/tenants/a", json={"weight": weight}, headers={"If-Match": read}
        )
        return answer.status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(change, range(2, 8)))

    assert statuses == [200, 412, 412, 412, 412, 412]


def test_the_document_tells_where_versions_count(api: Api):
    paths = api.operator.get("/openapi.json").json()["paths"]

    patch = paths["/v1/hosts/{name}"]["patch"]
    assert "412" in patch["responses"]
    assert "If-Match" in [each["name"] for each in patch["parameters"]]
    assert "ETag" in paths["/v1/hosts/{name}"]["get"]["responses"]["200"]["headers"]


def test_what_is_not_there_is_not_found_whatever_version_is_meant(api: Api):
    answer = api.operator.patch("/v1/nothing/a", json={}, headers={"If-Match": '"x"'})

    the_problem(answer, 404, "no_such_path")
