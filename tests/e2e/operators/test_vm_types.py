"""An operator offers VM types; everybody sees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem

LARGE = {"name": "large", "resources": {"vcpus": 4, "memory_mib": 12288, "disk_gib": 60}}


def test_an_operator_offers_a_type_and_a_tenant_sees_it(api: Api):
    made = api.operator.post("/v1/vm-types", json=LARGE)

    assert made.status_code == 201
    assert made.json()["resources"] == LARGE["resources"]
    assert api.tenant_a.get("/v1/vm-types/large").json() == made.json()
    names = [item["name"] for item in api.tenant_a.get("/v1/vm-types").json()["items"]]
    assert names == ["large", "small"]


def test_a_tenant_may_not_offer_types(api: Api):
    the_problem(api.tenant_a.post("/v1/vm-types", json=LARGE), 403, "forbidden")


def test_a_name_on_offer_is_not_offered_again(api: Api):
    api.operator.post("/v1/vm-types", json=LARGE)

    the_problem(api.operator.post("/v1/vm-types", json=LARGE), 409, "duplicate")


@pytest.mark.parametrize(
    ("resources", "place"),
    [
        ({"vcpus": 1, "memory_mib": 1024, "unicorns": 1}, "#/resources/unicorns"),
        ({"vcpus": -1, "memory_mib": 1024}, "#/resources/vcpus"),
        ({"vcpus": 1.5, "memory_mib": 1024}, "#/resources/vcpus"),
        ({"vcpus": 10**30, "memory_mib": 1024}, "#/resources/vcpus"),
        ({"vcpus": 1}, "#/resources/memory_mib"),
        ({}, "#/resources"),
        ([1, 2], "#/resources"),
        ({"a~b/c": 1}, "#/resources/a~0b~1c"),
    ],
)
def test_resources_that_make_no_vm_are_pointed_at(api: Api, resources: Any, place: str):
    answer = api.operator.post("/v1/vm-types", json={"name": "odd", "resources": resources})

    assert places(the_problem(answer, 422, "invalid")) == [place]


def test_limits_are_told_with_the_type_and_are_none_where_none_were_set(api: Api):
    limits = {"disk_iops": 500, "disk_mib_s": 20, "net_mbps": 100}

    made = api.operator.post("/v1/vm-types", json=LARGE | {"limits": limits})

    assert made.status_code == 201
    assert made.json()["limits"] == limits
    assert made.json()["resources"] == LARGE["resources"]
    assert api.tenant_a.get("/v1/vm-types/small").json()["limits"] == {}


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        ({"disk_iops": 1}, "#/limits/disk_iops"),
        ({"disk_iops": None}, "#/limits/disk_iops"),
        ({"gpu_mbps": 100}, "#/limits/gpu_mbps"),
        ([5], "#/limits"),
    ],
)
def test_limits_that_cannot_be_kept_are_pointed_at(api: Api, limits: Any, place: str):
    answer = api.operator.post("/v1/vm-types", json=LARGE | {"limits": limits})

    assert places(the_problem(answer, 422, "invalid")) == [place]


def test_a_type_that_is_not_on_offer_is_not_found(api: Api):
    the_problem(api.tenant_a.get("/v1/vm-types/huge"), 404, "not_found")
