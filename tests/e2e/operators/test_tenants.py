"""An operator admits tenants and weighs them; a tenant sees itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import add_host, add_request, add_tenant


def test_an_operator_admits_a_tenant_and_weighs_it(api: Api):
    made = api.operator.post("/v1/tenants", json={"name": "c", "weight": 2.5})

    assert made.status_code == 201
    assert (made.json()["parent"], made.json()["is_group"]) == (None, False)
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


# ---- groups -----------------------------------------------------------------


def add_group(api: Api, name: str, parent: str | None = None) -> None:
    body = {"name": name, "is_group": True, "parent": parent}
    assert api.operator.post("/v1/tenants", json=body).status_code == 201


def test_tenants_are_moved_into_groups_and_out_again(api: Api):
    add_group(api, "research")
    add_group(api, "physics", parent="research")

    moved = api.operator.patch("/v1/tenants/a", json={"parent": "physics", "weight": 2})

    assert (moved.json()["parent"], moved.json()["weight"]) == ("physics", 2.0)
    assert api.operator.patch("/v1/tenants/physics", json={"parent": None}).json()["parent"] is None
    kept = api.operator.patch("/v1/tenants/a", json={"weight": 3}).json()
    assert (kept["parent"], kept["weight"]) == ("physics", 3.0)


def test_a_group_asks_for_nothing_and_gets_no_token(api: Api):
    add_group(api, "research")
    body = {"vm_type": "small", "count": 1, "tenant": "research"}

    refused = the_problem(api.operator.post("/v1/requests", json=body), 422, "invalid")
    assert places(refused) == ["#/tenant"]
    assert "whose tenants ask for themselves" in refused["detail"]
    body = {"role": "tenant", "tenant": "research", "name": "t"}
    assert places(the_problem(api.operator.post("/v1/tokens", json=body), 422, "invalid")) == [
        "#/tenant"
    ]


def test_nothing_stands_below_a_tenant_or_below_itself(api: Api):
    add_group(api, "research")
    add_group(api, "physics", parent="research")

    below_a_tenant = api.operator.patch("/v1/tenants/physics", json={"parent": "a"})
    assert places(the_problem(below_a_tenant, 422, "invalid")) == ["#/parent"]
    for parent in ("research", "physics"):
        body = {"parent": parent}
        circle = api.operator.patch("/v1/tenants/research", json=body)
        assert "below itself" in the_problem(circle, 409, "conflict")["detail"]


def test_what_a_move_would_do_is_told_and_not_done(api: Api):
    add_host(api.registry, vcpus=16)
    add_group(api, "research")
    add_tenant(api.registry, "c")
    for tenant in ("a", "b", "c"):
        add_request(api.registry, 50, tenant=tenant)
    before = api.operator.get("/v1/shares").json()

    body = api.operator.patch("/v1/tenants/a?dry_run=true", json={"parent": "research"}).json()
    both = {"parent": "research"}
    api.operator.patch("/v1/tenants/b", json=both)
    then = api.operator.patch("/v1/tenants/a?dry_run=true", json=both).json()

    assert body["applied"] is False
    assert before["items"][0]["entitlement"] == 0  # a group without tenants
    of = {each["name"]: each for each in body["tenants"]}
    assert (of["a"]["parent_before"], of["a"]["parent_after"]) == (None, "research")
    assert of["a"]["entitlement_before"] == pytest.approx(1 / 3)
    assert of["a"]["entitlement_after"] == pytest.approx(1 / 3)
    of = {each["name"]: each for each in then["tenants"]}
    assert of["a"]["entitlement_after"] == pytest.approx(1 / 4)
    assert of["c"]["entitlement_after"] == pytest.approx(1 / 2)
    assert of["a"]["target_before"] > of["a"]["target_after"]
    assert of["c"]["target_before"] < of["c"]["target_after"]
    assert api.operator.get("/v1/tenants/a").json()["parent"] is None
    assert api.registry.events.list(kind="tenant_moved", subject_id="a") == ()


def test_a_dry_run_refuses_what_the_change_itself_would(api: Api):
    the_problem(
        api.operator.patch("/v1/tenants/a?dry_run=true", json={"parent": "b"}), 422, "invalid"
    )
    the_problem(api.operator.post("/v1/tenants?dry_run=true", json={"name": "a"}), 409, "duplicate")


def test_a_new_tenant_is_tried_before_it_is_made(api: Api):
    shown = api.operator.post("/v1/tenants?dry_run=true", json={"name": "c", "weight": 2})

    assert shown.status_code == 200
    of = {each["name"]: each for each in shown.json()["tenants"]}
    assert of["c"]["entitlement_before"] is None
    assert of["c"]["entitlement_after"] == pytest.approx(1 / 2)
    assert of["a"]["entitlement_after"] == pytest.approx(1 / 4)
    the_problem(api.operator.get("/v1/tenants/c"), 404, "not_found")


def test_a_tenant_sees_its_own_share_alone(api: Api):
    add_group(api, "research")
    api.operator.patch("/v1/tenants/a", json={"parent": "research"})

    (own,) = api.tenant_a.get("/v1/shares").json()["items"]

    assert (own["name"], own["parent"], own["entitlement"]) == ("a", "research", 0.5)
    assert [each["name"] for each in api.operator.get("/v1/shares").json()["items"]] == [
        "research",
        "a",
        "b",
    ]


def test_a_tenant_is_removed_when_nobody_uses_it(api: Api):
    add_group(api, "research")
    api.operator.patch("/v1/tenants/a", json={"parent": "research"})
    request = api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 2}).json()

    used = the_problem(api.operator.delete("/v1/tenants/a"), 409, "conflict")
    assert "1 request that is not finished, 2 VMs that are not gone, 1 token" in used["detail"]
    full = the_problem(api.operator.delete("/v1/tenants/research"), 409, "conflict")
    assert "1 member" in full["detail"]
    api.tenant_a.delete(f"/v1/requests/{request['id']}")
    for token in api.operator.get("/v1/tokens").json()["items"]:
        if token["tenant"] == "a":
            api.operator.delete(f"/v1/tokens/{token['id']}")
    assert api.operator.delete("/v1/tenants/a").status_code == 200
    assert api.operator.delete("/v1/tenants/research").status_code == 200

    assert [it["name"] for it in api.operator.get("/v1/tenants").json()["items"]] == ["b"]
    the_problem(api.operator.delete("/v1/tenants/a"), 404, "not_found")
    kept = the_problem(api.operator.post("/v1/tenants", json={"name": "a"}), 409, "conflict")
    assert "its history keeps the name" in kept["detail"]
    add_group(api, "research")  # was never used by anybody: its name is free
    assert api.registry.check() == []
