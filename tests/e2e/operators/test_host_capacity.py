"""An operator says what hosts keep for themselves, and is warned of what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rest import create_app
from tests.e2e.conftest import Api
from tests.e2e.operators.test_hosts import capacity, register
from tests.problems import the_problem
from tests.register import a_report
from tests.servers.http_client import a_client


@pytest.fixture
def careful(api: Api) -> Any:
    """An operator at a site whose hosts keep something for themselves."""
    client = a_client(create_app(api.registry, host_reserved={"vcpus": 1, "memory_mib": 2048}))
    client.headers = api.operator.headers
    return client


def reserved(host: dict[str, Any]) -> dict[str, int]:
    return {each["resource"]: each["reserved"] for each in host["inventories"]}


def test_a_host_keeps_the_sites_default_for_itself(api: Api, careful: Any):
    register(careful, overrides={})
    api.registry.hosts.record_report(api.registry.hosts.get("h1").id, a_report())

    host = careful.get("/v1/hosts/h1").json()

    assert reserved(host) == {"vcpus": 1, "memory_mib": 2048, "disk_gib": 0}
    assert capacity(host) == {"vcpus": 15, "memory_mib": 30_720, "disk_gib": 300}
    assert host["warnings"] == []


def test_what_is_said_of_a_host_goes_before_the_default(careful: Any):
    host = register(careful, overrides={"vcpus": 8}, reserved={"memory_mib": 512}).json()

    assert reserved(host) == {"vcpus": 0, "memory_mib": 512, "disk_gib": 0}


def test_an_override_above_what_was_detected_is_warned_of(api: Api):
    register(api.operator, overrides={"vcpus": 32})
    api.registry.hosts.record_report(api.registry.hosts.get("h1").id, a_report())

    warned = api.operator.get("/v1/hosts/h1").json()
    mended = api.operator.patch("/v1/hosts/h1", json={"overrides": {"vcpus": 12}}).json()

    assert warned["warnings"] == ["the override of vcpus, 32, is above what was detected, 16"]
    [vcpus, *_] = warned["inventories"]
    assert (vcpus["detected"], vcpus["override"], vcpus["capacity"]) == (16, 32, 32)
    assert mended["warnings"] == []


def test_a_host_that_keeps_everything_for_itself_is_warned_of(api: Api):
    register(api.operator, overrides={}, reserved={"vcpus": 16})
    api.registry.hosts.record_report(api.registry.hosts.get("h1").id, a_report())

    [warning] = api.operator.get("/v1/hosts/h1").json()["warnings"]

    assert warning.startswith("all vcpus are reserved, 16 of the 16")


def ratio(api: Api, name: str) -> tuple[int, int | None]:
    host = api.operator.get(f"/v1/hosts/{name}").json()
    [vcpus, *_] = host["inventories"]
    return vcpus["ratio_thousandths"], vcpus["own_ratio_thousandths"]


def set_ratios(api: Api, label: str, **ratios: int) -> Any:
    return api.operator.put("/v1/label-ratios", json={"label": label, "ratios": ratios})


def test_hosts_without_a_ratio_of_their_own_have_that_of_their_labels(api: Api):
    register(api.operator, labels=["cheap"], overrides={"vcpus": 10})
    register(api.operator, name="h2", uri="qemu+tls://h2/system", labels=["cheap", "old"])
    register(api.operator, name="h3", uri="qemu+tls://h3/system", ratios={"vcpus": 1500})

    made = set_ratios(api, "cheap", vcpus=4000)
    set_ratios(api, "old", vcpus=2000, memory_mib=1100)

    assert made.json() == {"label": "cheap", "ratios": {"vcpus": 4000}}
    assert ratio(api, "h1") == (4000, None)
    assert capacity(api.operator.get("/v1/hosts/h1").json())["vcpus"] == 40
    assert ratio(api, "h2") == (2000, None)  # of several the most careful
    assert ratio(api, "h3") == (1500, 1500)
    listed = api.operator.get("/v1/label-ratios").json()["items"]
    assert [each["label"] for each in listed] == ["cheap", "old"]


def test_the_ratio_in_force_follows_labels_and_settings(api: Api):
    register(api.operator, labels=["cheap"])
    set_ratios(api, "cheap", vcpus=4000)

    def change(**body: Any) -> tuple[int, int | None]:
        api.operator.patch("/v1/hosts/h1", json=body)
        return ratio(api, "h1")

    assert change(ratios={"vcpus": 3000}) == (3000, 3000)
    assert change(ratios={"vcpus": None}) == (4000, None)
    assert change(labels=[]) == (1000, None)
    assert change(labels=["cheap"]) == (4000, None)
    set_ratios(api, "cheap")
    assert ratio(api, "h1") == (1000, None)
    register(api.operator, name="h2", uri="qemu+tls://h2/system", labels=["cheap"])
    assert ratio(api, "h2") == (1000, None)


def test_only_operators_set_ratios_and_only_of_resources(api: Api):
    body = {"label": "cheap", "ratios": {"vcpus": 4000}}

    refused = api.tenant_a.put("/v1/label-ratios", json=body)
    unknown = set_ratios(api, "cheap", unicorns=4000)
    nothing = set_ratios(api, "cheap", vcpus=0)

    the_problem(refused, 403, "forbidden")
    the_problem(unknown, 422, "invalid")
    the_problem(nothing, 422, "invalid")


def test_each_vm_holds_an_overhead_beyond_its_type(api: Api):
    changed = api.operator.patch("/v1/resources/memory_mib", json={"overhead_per_vm": 96})

    assert (changed.status_code, changed.json()["overhead_per_vm"]) == (200, 96)
    listed = api.tenant_a.get("/v1/resources").json()["items"]
    assert [(each["name"], each["overhead_per_vm"]) for each in listed] == [
        ("vcpus", 0),
        ("memory_mib", 96),
        ("disk_gib", 0),
    ]
    refused = api.tenant_a.patch("/v1/resources/memory_mib", json={"overhead_per_vm": 0})
    the_problem(refused, 403, "forbidden")
    unknown = api.operator.patch("/v1/resources/gold", json={"overhead_per_vm": 0})
    the_problem(unknown, 404, "not_found")
    negative = api.operator.patch("/v1/resources/vcpus", json={"overhead_per_vm": -1})
    the_problem(negative, 422, "invalid")
