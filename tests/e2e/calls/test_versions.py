"""Changing a thing only while it still is what was read: ETag and If-Match."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest

from registry import HostAdminEvent, Registry
from registry.hosts import Host
from tests.builders import a_public_key
from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import ACTOR, a_report, a_stranger, add_group, add_host, place, run_vm


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


def test_versions_in_several_lines_are_one_list(api: Api):
    lines = [("If-Match", '"other"'), ("If-Match", tag(api.operator, "/v1/tenants/a"))]

    answer = api.operator.patch("/v1/tenants/a", json={"weight": 2}, headers=lines)

    assert answer.is_success, answer.text


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


HOST, NETWORK, TENANT, QUOTA = "hosts/h1", "networks/lan", "tenants/a", "tenants/a/quota"
BY_SSH, REQUEST, VM, VOLUME = "hosts/by-ssh", "requests/{request}", "vms/{vm}", "volumes/{volume}"
#: Which field of which thing each call sets; the others are given when a thing is created.
CHANGES: list[tuple[str, str, str, str, dict[str, Any]]] = [
    (HOST, "admin", "PATCH", "", {"admin": "draining"}),
    (HOST, "labels", "PATCH", "", {"labels": ["ssd"]}),
    (HOST, "inventories", "PATCH", "", {"overrides": {"vcpus": 12}}),
    (HOST, "inventories", "PATCH", "", {"reserved": {"vcpus": 2}}),
    (HOST, "inventories", "PATCH", "", {"ratios": {"vcpus": 2000}}),
    (HOST, "max_builds", "PATCH", "", {"max_builds": 7}),
    (HOST, "fence_target", "PATCH", "", {"fence_target": "ipmi-1"}),
    (BY_SSH, "credential", "PATCH", "", {"credential": "site-2"}),
    (BY_SSH, "ssh_host_keys", "PATCH", "", {"ssh_host_keys": [a_public_key()]}),
    (NETWORK, "hosts", "PATCH", "", {"hosts": {"h1": {"kind": "bridge", "name": "br7"}}}),
    (NETWORK, "offered_to", "PATCH", "", {"offered_to": ["a"]}),
    (NETWORK, "isolated", "PATCH", "", {"isolated": False}),
    (NETWORK, "filtered", "PATCH", "", {"filtered": False}),
    (TENANT, "weight", "PATCH", "", {"weight": 3}),
    (TENANT, "parent", "PATCH", "", {"parent": "lab"}),
    (QUOTA, "limits", "PATCH", "", {"limits": {"vms": 9}}),
    (QUOTA, "over_quota", "PATCH", "", {"over_quota": "wait"}),
    (REQUEST, "labels", "PATCH", "", {"labels": {"env": "test"}}),
    (REQUEST, "expires_at", "PATCH", "", {"ttl_s": 3600}),
    (REQUEST, "count", "PATCH", "", {"count": 3}),
    (VM, "labels", "PATCH", "", {"labels": {"env": "test"}}),
    (VM, "desired", "POST", "/stop", {}),
    (VOLUME, "protected", "PATCH", "", {"protected": True}),
]


def a_site(api: Api) -> dict[str, str]:
    """Make one thing of each kind; two VMs are placed on h1, and one of them runs."""
    host = add_host(api.registry, "h1")
    by_ssh = {"name": "by-ssh", "uri": "qemu+ssh://fuga@10.0.0.7/system", "credential": "site"}
    assert api.operator.post("/v1/hosts", json=by_ssh).status_code == 202
    add_group(api.registry, "lab")
    subnet = {"cidr": "10.7.0.0/24"}
    lan = {"name": "lan", "default": {"kind": "bridge", "name": "br0"}, "subnet": subnet}
    assert api.operator.post("/v1/networks", json=lan).status_code == 201
    wanted = {"vm_type": "small", "count": 2, "network": "lan"}
    made = api.tenant_a.post("/v1/requests", json=wanted)
    assert made.status_code == 201, made.text
    request = api.registry.requests.get(UUID(made.json()["id"]))
    placed = place(api.registry, request, host, 2)
    build = run_vm(api.registry, placed.assignment_ids[0])
    volume = api.tenant_a.post("/v1/volumes", json={"name": "data", "size_gib": 1})
    assert volume.status_code == 201, volume.text
    return {"request": str(request.id), "vm": str(build.vm_id), "volume": volume.json()["id"]}


@pytest.mark.parametrize("thing", dict.fromkeys(each[0] for each in CHANGES))
def test_whatever_a_client_sets_is_another_version(api: Api, thing: str):
    path = "/v1/" + thing.format(**a_site(api))
    for _, field, method, below, body in (each for each in CHANGES if each[0] == thing):
        before, read = api.operator.get(path).json()[field], tag(api.operator, path)

        answer = api.operator.request(method, path + below, json=body)

        assert answer.is_success, answer.text
        assert api.operator.get(path).json()[field] != before
        assert tag(api.operator, path) != read, body
        if method == "PATCH":
            stale = api.operator.patch(path, json=body, headers={"If-Match": read})
            the_problem(stale, 412, "version_mismatch")


def observe_a_report(registry: Registry, vm: UUID) -> None:
    host = registry.hosts.get("h1")
    registry.hosts.record_report(host.id, a_report(a_stranger(), vcpus=99, volumes=("x",)))
    assert registry.vms.get(vm).observed == "lost"


def observe_misses(registry: Registry, vm: UUID) -> None:
    host = registry.hosts.get("h1")
    for _ in range(2):
        registry.hosts.record_miss(host.id, "gone", unreachable_after=1, down_after=2)
    assert registry.hosts.get("h1").health == "down"


def observe_a_failed_build(registry: Registry, vm: UUID) -> None:
    [other] = [each for each in registry.vms.list().items if each.id != vm]
    assert other.assignment_id is not None
    build = registry.assignments.claim_build(other.assignment_id, "w2", 60)
    assert build is not None
    registry.assignments.record_failure(build.claim, "no space left", transient=False)


@pytest.mark.parametrize("observe", [observe_a_report, observe_misses, observe_a_failed_build])
def test_whatever_is_observed_leaves_every_version(
    api: Api, observe: Callable[[Registry, UUID], None]
):
    site = a_site(api)
    paths = [f"/v1/{each[0].format(**site)}" for each in CHANGES]
    before = {path: (tag(api.operator, path), api.operator.get(path).json()) for path in paths}

    observe(api.registry, UUID(site["vm"]))

    assert {path: tag(api.operator, path) for path in paths} == {
        path: read for path, (read, _) in before.items()
    }
    assert any(api.operator.get(path).json() != shown for path, (_, shown) in before.items())


def test_a_host_that_has_the_name_of_a_retired_one_has_another_version(api: Api):
    add_host(api.registry, "h1")
    read = tag(api.operator, "/v1/hosts/h1")
    assert api.operator.delete("/v1/hosts/h1").is_success

    add_host(api.registry, "h1")

    assert tag(api.operator, "/v1/hosts/h1") != read


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
    api.registry.hosts.change_admin("h1", HostAdminEvent.DRAIN, actor=ACTOR)
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
