"""An operator admits tenants and weighs them; a tenant sees itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem


def test_an_operator_admits_a_tenant_and_weighs_it(api: Api):
    made = api.operator.post("/v1/tenants", json={"name": "c", "weight": 2.5, "parent": "a"})

    assert made.status_code == 201
    assert made.json()["parent"] == "a"
    weighed = api.operator.patch("/v1/tenants/c", json={"weight": 3})
    assert weighed.json()["weight"] == 3.0
    assert api.operator.get("/v1/tenants/c").json() == weighed.json()
    names = [item["name"] for item in api.operator.get("/v1/tenants").json()["items"]]
    assert names == ["a", "b", "c"]


def test_a_tenant_sees_itself_alone(api: Api):
    items = api.tenant_a.get("/v1/tenants").json()["items"]

    assert [item["name"] for item in items] == ["a"]
    assert api.tenant_a.get("/v1/tenants/a").json() == items[0]
    the_problem(api.tenant_a.get("/v1/tenants/b"), 404, "not_found")


def test_a_tenant_changes_no_weights_and_admits_nobody(api: Api):
    the_problem(api.tenant_a.patch("/v1/tenants/a", json={"weight": 100}), 403, "forbidden")
    the_problem(api.tenant_a.post("/v1/tenants", json={"name": "c"}), 403, "forbidden")


def test_a_name_that_is_taken_is_a_conflict(api: Api):
    the_problem(api.operator.post("/v1/tenants", json={"name": "a"}), 409, "duplicate")


@pytest.mark.parametrize("weight", [0, -1, 1e9, "1", None, True])
def test_a_weight_out_of_bounds_is_pointed_at(api: Api, weight: Any):
    answer = api.operator.patch("/v1/tenants/a", json={"weight": weight})

    assert places(the_problem(answer, 422, "invalid")) == ["#/weight"]


def test_an_unknown_parent_is_pointed_at(api: Api):
    answer = api.operator.post("/v1/tenants", json={"name": "c", "parent": "nobody"})

    assert places(the_problem(answer, 422, "invalid")) == ["#/parent"]


def test_a_tenant_that_does_not_exist_has_no_weight(api: Api):
    the_problem(api.operator.patch("/v1/tenants/nobody", json={"weight": 1}), 404, "not_found")
