"""An operator registers hosts, takes them out of service and retires them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.rest import create_app
from registry.hosts import UriPolicy
from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import a_report, a_stranger
from tests.servers.http_client import a_client

H1 = {
    "name": "h1",
    "uri": "qemu+tls://h1.example/system",
    "labels": ["ssd"],
    "overrides": {"vcpus": 16, "memory_mib": 32768, "disk_gib": 300},
}


def register(client: httpx.Client, **changes: Any) -> httpx.Response:
    return client.post("/v1/hosts", json={**H1, **changes})


def capacity(host: dict[str, Any]) -> dict[str, int]:
    return {each["resource"]: each["capacity"] for each in host["inventories"]}


def test_a_registered_host_enrols_until_the_monitor_has_reached_it(api: Api):
    made = register(api.operator)

    assert made.status_code == 202
    host = made.json()
    assert (host["admin"], host["health"]) == ("active", "enrolling")
    assert capacity(host) == H1["overrides"]
    assert api.operator.get("/v1/hosts/h1").json() == host
    assert api.operator.get("/v1/hosts").json()["items"] == [host]


def test_what_the_monitor_saw_of_a_host_is_shown_once_it_answered(api: Api):
    register(api.operator)
    silent = api.operator.get("/v1/hosts/h1/report")

    host = api.registry.hosts.get("h1")
    api.registry.hosts.record_report(host.id, a_report(a_stranger("other")))

    assert (silent.status_code, silent.json()["code"]) == (404, "not_found")
    report = api.operator.get("/v1/hosts/h1/report").json()
    assert (report["cpu_busy_percent"], report["memory_used_mib"]) == (3.0, 1024)
    assert [domain["name"] for domain in report["domains"]] == ["other"]
    assert api.tenant_a.get("/v1/hosts/h1/report").status_code == 403


def test_a_host_is_drained_maintained_activated_and_retired(api: Api):
    register(api.operator)

    for admin in ("draining", "maintenance", "active", "active"):
        changed = api.operator.patch("/v1/hosts/h1", json={"admin": admin})
        assert changed.json()["admin"] == admin
    retired = api.operator.delete("/v1/hosts/h1")

    assert retired.json()["admin"] == "retired"
    assert api.operator.get("/v1/hosts").json()["items"] == []
    shown = api.operator.get("/v1/hosts", params={"include_retired": "true"}).json()["items"]
    assert [host["name"] for host in shown] == ["h1"]


def test_settings_of_a_host_are_changed_one_by_one(api: Api):
    register(api.operator)

    changed = api.operator.patch(
        "/v1/hosts/h1",
        json={"labels": ["hdd"], "reserved": {"vcpus": 2}, "ratios": {"vcpus": 2000}},
    ).json()

    assert changed["labels"] == ["hdd"]
    assert capacity(changed) == {"vcpus": 28, "memory_mib": 32768, "disk_gib": 300}


def test_an_override_is_taken_back_with_null(api: Api):
    register(api.operator)

    changed = api.operator.patch("/v1/hosts/h1", json={"overrides": {"vcpus": None}}).json()

    assert capacity(changed) == {"vcpus": 0, "memory_mib": 32768, "disk_gib": 300}


def test_a_change_of_nothing_changes_nothing(api: Api):
    host = register(api.operator).json()

    assert api.operator.patch("/v1/hosts/h1", json={}).json() == host


def test_a_second_host_with_the_name_or_the_uri_is_refused(api: Api):
    register(api.operator)

    same_name = register(api.operator, uri="qemu+tls://h2.example/system")
    same_uri = register(api.operator, name="h2")

    assert "name" in the_problem(same_name, 409, "duplicate")["detail"]
    assert "uri" in the_problem(same_uri, 409, "duplicate")["detail"].lower()


@pytest.mark.parametrize(
    "uri",
    [
        "test:///default",
        "qemu:///system",
        "xen+ssh://h1/system",
        "qemu+ext://h1/system?command=/bin/sh",
        "qemu+ssh://h1/system?command=/bin/sh",
        "qemu+ssh://h1/system?netcat=/tmp/evil",
        "qemu+ssh://h1/system?keyfile=/root/.ssh/id_rsa",
        "qemu+ssh://-oProxyCommand=touch/system",
        "qemu+ssh://user:password@h1/system",
        "qemu+tls:///system",
        "qemu+tls://h1/system#fragment",
        "h1",
    ],
)
def test_a_forbidden_uri_is_refused_with_the_reason(api: Api, uri: str):
    problem = the_problem(register(api.operator, uri=uri), 422, "uri_refused")

    assert places(problem) == ["#/uri"]
    assert problem["errors"][0]["allowed"]
    assert "password@" not in str(problem)
    assert api.operator.get("/v1/hosts").json()["items"] == []


def test_a_uri_with_control_characters_is_refused(api: Api):
    answer = register(api.operator, uri="qemu+tls://h1/system\n?command=x")

    assert places(the_problem(answer, 422, "invalid")) == ["#/uri"]


def test_schemes_and_parameters_are_what_the_settings_allow(api: Api):
    policy = UriPolicy(schemes=frozenset({"test"}), parameters=frozenset({"no_verify"}))
    lenient = a_client(create_app(api.registry, uri_policy=policy))
    lenient.headers = api.operator.headers

    assert register(lenient, uri="test:///default?no_verify=1").status_code == 202
    the_problem(register(lenient, name="h2"), 422, "uri_refused")


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("name", "H 1", "#/name"),
        ("overrides", {"unicorns": 1}, "#/overrides/unicorns"),
        ("overrides", {"vcpus": -1}, "#/overrides/vcpus"),
        ("ratios", {"vcpus": 0}, "#/ratios/vcpus"),
        ("domain_type", "xen", "#/domain_type"),
        ("max_builds", 0, "#/max_builds"),
        ("pool", "../../etc", "#/pool"),
        ("base_volume", "-rf", "#/base_volume"),
        ("memory_backing_mib", 0, "#/memory_backing_mib"),
        ("labels", ["x"] * 65, "#/labels"),
    ],
)
def test_a_setting_out_of_bounds_is_pointed_at(api: Api, field: str, value: Any, place: str):
    problem = the_problem(register(api.operator, **{field: value}), 422, "invalid")

    assert places(problem) == [place]


def test_tenants_do_not_see_hosts(api: Api):
    register(api.operator)

    for answer in (
        api.tenant_a.get("/v1/hosts"),
        api.tenant_a.get("/v1/hosts/h1"),
        api.tenant_a.patch("/v1/hosts/h1", json={"admin": "draining"}),
        api.tenant_a.delete("/v1/hosts/h1"),
        register(api.tenant_a, name="h2"),
    ):
        the_problem(answer, 403, "forbidden")


def test_a_retired_host_stays_retired_and_unchanged(api: Api):
    register(api.operator)
    api.operator.delete("/v1/hosts/h1")

    answer = api.operator.patch("/v1/hosts/h1", json={"admin": "active", "labels": ["hdd"]})

    assert answer.status_code in {404, 409}
    shown = api.operator.get("/v1/hosts", params={"include_retired": "true"}).json()["items"]
    assert shown[0]["labels"] == ["ssd"]


def test_a_host_that_does_not_exist_is_not_found(api: Api):
    the_problem(api.operator.get("/v1/hosts/h9"), 404, "not_found")
    the_problem(api.operator.patch("/v1/hosts/h9", json={"admin": "active"}), 404, "not_found")
    the_problem(api.operator.delete("/v1/hosts/h9"), 404, "not_found")
