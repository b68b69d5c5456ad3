"""A tenant asks for VMs, looks, and gives them back."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem
from tests.register import take_lease

FOUR_SMALL = {"vm_type": "small", "count": 4, "name": "web"}


def ask(client: httpx.Client, **changes: Any) -> httpx.Response:
    body = json.dumps({**FOUR_SMALL, **changes})  # ASCII: a lone surrogate goes through
    return client.post("/v1/requests", content=body, headers={"Content-Type": "application/json"})


def test_a_tenant_asks_for_vms_and_they_wait_for_the_next_slot(api: Api):
    made = ask(api.tenant_a)

    assert made.status_code == 201
    request = made.json()
    assert request["tenant"] == "a"
    assert request["state"] == "pending"
    assert (request["count"], request["vms_placed"], request["vms_running"]) == (4, 0, 0)
    assert api.tenant_a.get(f"/v1/requests/{request['id']}").json() == request
    assert api.tenant_a.get("/v1/requests").json() == {"items": [request], "next": None}
    vms = api.tenant_a.get("/v1/vms", params={"request": request["id"]}).json()["items"]
    assert sorted(vm["name"] for vm in vms) == ["web-1", "web-2", "web-3", "web-4"]


def test_a_host_name_is_given_to_the_guests_and_checked(api: Api):
    made = ask(api.tenant_a, count=2, hostname="web.example.org")
    wrong = ask(api.tenant_a, name="other", hostname="web_server")

    assert made.json()["hostname"] == "web.example.org"
    vms = api.tenant_a.get("/v1/vms").json()["items"]
    assert [vm["hostname"] for vm in vms] == ["web-1.example.org", "web-2.example.org"]
    refused = the_problem(wrong, 422, "invalid")
    assert places(refused) == ["#/hostname"]
    assert "RFC 1123" in refused["detail"]


def test_a_request_that_waits_explains_itself(api: Api):
    request = ask(api.tenant_a).json()

    explanation = api.tenant_a.get(f"/v1/requests/{request['id']}/explanation").json()

    assert explanation["state"] == "pending"
    assert (explanation["wanted"], explanation["placed"], explanation["order"]) == (4, 0, 1)
    assert explanation["waiting"]["count"] == 4
    assert explanation["waiting"]["message"].startswith(
        "no control centre decides, so no VM is placed"
    )
    take_lease(api.registry)
    decided = api.tenant_a.get(f"/v1/requests/{request['id']}/explanation").json()["waiting"]
    assert decided["message"] == "it waits for the next slot"
    assert len(explanation["vms"]) == 4


def test_an_operator_asks_for_a_tenant_and_must_say_for_which(api: Api):
    made = ask(api.operator, tenant="b")
    silent = ask(api.operator, name="other")
    unknown = ask(api.operator, tenant="nobody")

    assert made.json()["tenant"] == "b"
    assert places(the_problem(silent, 422, "invalid")) == ["#/tenant"]
    assert places(the_problem(unknown, 422, "invalid")) == ["#/tenant"]


def test_a_tenant_may_name_itself_but_nobody_else(api: Api):
    assert ask(api.tenant_a, tenant="a").status_code == 201
    the_problem(ask(api.tenant_a, tenant="b", name="other"), 403, "forbidden")


def test_deleting_a_request_that_was_never_placed_cancels_it(api: Api):
    request = ask(api.tenant_a).json()

    deleted = api.tenant_a.delete(f"/v1/requests/{request['id']}")

    assert deleted.status_code == 202
    assert deleted.json()["state"] == "cancelled"
    assert api.tenant_a.delete(f"/v1/requests/{request['id']}").status_code == 202
    assert api.tenant_a.get("/v1/vms").json()["items"] == []


def test_an_unknown_vm_type_is_pointed_at(api: Api):
    problem = the_problem(ask(api.tenant_a, vm_type="huge"), 422, "invalid")

    assert places(problem) == ["#/vm_type"]
    assert problem["errors"][0]["found"] == "huge"


@pytest.mark.parametrize(
    "count",
    ["0", "-1", "-1" + "0" * 30, "10001", str(2**64), "1.5", '"4"', "true", "null", "[]", "1e400"],
)
def test_an_absurd_count_is_refused_with_what_is_allowed(api: Api, count: str):
    answer = api.tenant_a.post(
        "/v1/requests",
        content=f'{{"vm_type": "small", "count": {count}}}',
        headers={"Content-Type": "application/json"},
    )

    problem = the_problem(answer, 422, "invalid")
    assert places(problem) == ["#/count"]
    assert problem["errors"][0]["allowed"]
    assert api.tenant_a.get("/v1/requests").json()["items"] == []


def test_a_gang_is_asked_for_by_its_min_count(api: Api):
    request = ask(api.tenant_a, count=3, min_count=2).json()

    assert (request["count"], request["min_count"]) == (3, 2)


@pytest.mark.parametrize("min_count", [0, 4, 10_001])
def test_a_min_count_that_no_round_could_keep_is_refused(api: Api, min_count: int):
    problem = the_problem(ask(api.tenant_a, count=3, min_count=min_count), 422, "invalid")

    assert places(problem) == ["#/min_count"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Web"),
        ("name", "web\x00"),
        ("name", "web\n"),
        ("name", "x" * 64),
        ("name", ""),
        ("name", "\ud800"),
        ("vm_type", "../etc"),
        ("requires", ["ssd", "bad label"]),
        ("requires", "ssd"),
        ("hosts", []),
        ("hosts", ["h1", 7]),
        ("colour", "blue"),
    ],
)
def test_a_field_out_of_bounds_is_pointed_at(api: Api, field: str, value: Any):
    problem = the_problem(ask(api.tenant_a, **{field: value}), 422, "invalid")

    assert places(problem)[0].startswith(f"#/{field}")


def test_a_bad_name_is_answered_with_what_a_name_is(api: Api):
    problem = the_problem(ask(api.tenant_a, name="Web Server"), 422, "invalid")

    assert problem["errors"] == [
        {
            "in": "body",
            "pointer": "#/name",
            "detail": problem["detail"],
            "found": "Web Server",
            "allowed": "1 to 63 of a-z, 0-9, '.', '_', '-', first and last a letter or digit",
        }
    ]


def test_a_missing_field_is_named(api: Api):
    answer = api.tenant_a.post("/v1/requests", json={"count": 1})

    problem = the_problem(answer, 422, "invalid")
    assert places(problem) == ["#/vm_type"]
    assert problem["errors"][0]["found"] == "nothing"


def test_a_name_in_use_is_a_conflict_for_its_tenant_alone(api: Api):
    ask(api.tenant_a)

    the_problem(ask(api.tenant_a), 409, "duplicate")
    assert ask(api.tenant_b).status_code == 201


def test_another_tenants_request_does_not_exist(api: Api):
    request = ask(api.tenant_a).json()["id"]
    nothing = str(uuid.uuid4())

    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/explanation")):
        theirs = api.tenant_b.request(method, f"/v1/requests/{request}{path}")
        none = api.tenant_b.request(method, f"/v1/requests/{nothing}{path}")
        the_problem(theirs, 404, "not_found")
        assert theirs.text.replace(request, "ID") == none.text.replace(nothing, "ID")
    assert api.tenant_b.get("/v1/requests").json()["items"] == []
    the_problem(api.tenant_b.get("/v1/requests", params={"tenant": "a"}), 403, "forbidden")
    assert api.tenant_a.get(f"/v1/requests/{request}").json()["state"] == "pending"


def test_an_operator_sees_all_and_filters(api: Api):
    ask(api.tenant_a)
    ask(api.tenant_a, name="db")
    ask(api.tenant_b)

    def names(**query: str) -> list[tuple[str, str]]:
        items = api.operator.get("/v1/requests", params=query).json()["items"]
        return [(item["tenant"], item["name"]) for item in items]

    assert names() == [("a", "web"), ("a", "db"), ("b", "web")]
    assert names(tenant="b") == [("b", "web")]
    assert names(name="web") == [("a", "web"), ("b", "web")]
    assert names(state="placed") == []
    assert names(state="pending", tenant="a", name="db") == [("a", "db")]


def test_a_state_that_does_not_exist_is_answered_with_those_that_do(api: Api):
    answer = api.operator.get("/v1/requests", params={"state": "happy"})

    problem = the_problem(answer, 422, "invalid")
    assert places(problem) == ["state"]
    assert "pending" in problem["errors"][0]["allowed"]


def test_an_id_that_is_none_is_refused(api: Api):
    the_problem(api.tenant_a.get("/v1/requests/web"), 422, "invalid")
    the_problem(api.tenant_a.get(f"/v1/requests/{uuid.uuid4()}"), 404, "not_found")
