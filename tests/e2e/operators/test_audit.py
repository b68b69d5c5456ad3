"""The audit: whatever may change something leaves a row, however it ends."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from controller.rest import create_app
from controller.rest.middleware.rate_limits import Rate, RateLimits
from registry import Registry
from registry.admin import Periods
from registry.audit import AuditedCall
from tests.e2e.conftest import Api, a_token
from tests.problems import places, the_problem
from tests.raw_sql import RawSql
from tests.register import add_tenant
from tests.servers.http_client import a_client

LAPTOP = {"role": "tenant", "tenant": "a", "name": "laptop"}
ID = "00000000-0000-7000-8000-000000000000"
#: What is refused by the route and not before it: it changes nothing but the caller's own access.
OF_ANYBODY = {("POST", "/v1/login"), ("POST", "/v1/login/links"), ("DELETE", "/v1/token")}


def entries(api: Api, **filters: Any) -> list[dict[str, Any]]:
    answer = api.operator.get("/v1/audit", params=filters)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_a_change_tells_who_did_what_when_from_where_and_how_it_ended(api: Api):
    made = api.tenant_a.post(
        "/v1/requests",
        json={"vm_type": "small", "count": 2},
        headers={"X-Request-Id": "from-the-caller"},
    )

    (entry,) = entries(api)
    assert entry["at"] >= made.json()["created_at"][:10]
    assert entry | {"id": 1, "at": None, "token_id": None} == {
        "id": 1,
        "at": None,
        "request_id": "from-the-caller",
        "token_id": None,
        "token": "a-token",
        "tenant": "a",
        "address": "testclient",
        "method": "POST",
        "path": "/v1/requests",
        "route": "/v1/requests",
        "subject": made.json()["id"],
        "status": 201,
        "suppressed": 0,
        "refusals": None,
        "last_at": None,
    }


def test_what_is_read_leaves_no_row(api: Api):
    for path in ("/v1/requests", "/v1/hosts", "/v1/audit", f"/v1/vms/{ID}"):
        api.operator.get(path)

    assert entries(api) == []


@pytest.mark.sqlite
def test_every_route_that_may_change_something_is_audited_whoever_calls(api: Api):
    reader = a_client(api.app, token=_a_reader(api.registry))
    changing = [
        (method.upper(), template)
        for template, operations in api.app.openapi()["paths"].items()
        for method in operations
        if method in {"post", "patch", "put", "delete"}
    ]
    assert len(changing) > 25
    expected: Counter[str] = Counter()

    for method, template in changing:
        path = re.sub(r"\{number\}", "7", re.sub(r"\{\w+_id\}", ID, template))
        path = re.sub(r"\{\w+\}", "nothing", path)
        for client, status in ((api.operator, None), (reader, 403), (api.stranger, 401)):
            answer = client.request(method, path, json={})
            judged = status is None or (
                (method, template) in OF_ANYBODY and answer.status_code != status
            )
            assert answer.status_code in (range(200, 500) if judged else {status}), path
            route = template if judged else "none"
            expected[f"{answer.status_code} {method} {route}"] += 1

    api.app.state.refusals.flush()
    shown: Counter[str] = Counter()
    for entry in entries(api):
        kind = f"{entry['status']} {entry['method']} {entry['route']}"
        shown.update(entry["refusals"] or {kind: 1})
    assert shown == expected


def test_a_row_is_committed_with_the_change_and_tells_when_its_process_died(register: Registry):
    call = AuditedCall(method="POST", path="/v1/tenants", address="192.0.2.1", token="ops")
    register.for_call(call).tenants.add("new", weight=1.0, actor="operator:ops")

    (entry,) = register.audit.list().items
    assert (entry.subject, entry.status, entry.token) == ("new", None, "ops")


def test_a_change_that_is_taken_back_leaves_its_refusal_alone(api: Api):
    assert api.operator.post("/v1/tenants", json={"name": "new"}).status_code == 201
    again = api.operator.post("/v1/tenants", json={"name": "new"})

    the_problem(again, 409, "duplicate")
    assert [each["status"] for each in entries(api)] == [409, 201]


def test_a_call_with_a_key_has_one_row_and_its_repetition_another(api: Api):
    for _ in range(2):
        api.operator.post("/v1/tenants", json={"name": "new"}, headers={"Idempotency-Key": "k"})

    assert [each["status"] for each in entries(api)] == [201, 201]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/tenants", {"name": "a"}, 409),
        ("/v1/tokens", {"role": "tenant", "tenant": "none", "name": "t"}, 422),
        ("/v1/requests", {"vm_type": "none", "count": 1, "tenant": "a"}, 422),
        ("/v1/reservations", {"vm_type": "none", "count": 1, "for_s": 60, "tenant": "a"}, 422),
        ("/v1/requests", {"vm_type": "small", "count": 0, "tenant": "a"}, 422),
    ],
)
def test_a_refusal_with_a_key_leaves_what_one_without_leaves(
    api: Api, raw: RawSql, path: str, body: Any, status: int
):
    """The same refusal again is a row a minute; it would be one each if it began with its key."""
    headers: tuple[dict[str, str], ...] = ({}, {"Idempotency-Key": "k1"}, {"Idempotency-Key": "k2"})
    left = []
    for each in headers:
        answer = api.operator.post(path, json=body, headers=each)
        assert answer.status_code == status, answer.text
        left.append(raw.value("SELECT count(*) FROM audit"))

    assert left == [1, 1, 1]
    assert raw.value("SELECT count(*) FROM idempotency_keys") == 0


def test_a_request_with_a_key_is_committed_with_how_its_call_ended(api: Api, raw: RawSql):
    body = {"vm_type": "small", "count": 2}
    made = api.tenant_a.post("/v1/requests", json=body, headers={"Idempotency-Key": "k"})

    (entry,) = entries(api)
    assert (entry["status"], entry["route"], entry["subject"]) == (
        201,
        "/v1/requests",
        made.json()["id"],
    )
    assert raw.value("SELECT count(*) FROM idempotency_keys WHERE status = 201") == 1


def test_an_update_that_came_too_late_is_told_as_such(api: Api):
    answer = api.operator.patch(
        "/v1/tenants/a", json={"weight": 2}, headers={"If-Match": '"other"'}
    )

    the_problem(answer, 412, "version_mismatch")
    (entry,) = entries(api)
    assert (entry["status"], entry["subject"]) == (412, "a")


def test_calls_are_found_by_what_is_known_of_them(api: Api):
    api.tenant_a.post("/v1/requests", json={"vm_type": "small", "count": 1})
    api.tenant_b.delete(f"/v1/requests/{ID}")
    api.tenant_b.post("/v1/tenants", json={"name": "mine"})
    api.stranger.post("/v1/tenants", json={"name": "mine"})
    api.app.state.refusals.flush()

    def found(**filters: Any) -> list[int]:
        return [each["status"] for each in entries(api, **filters)]

    assert found() == [401, 404, 201]
    assert found(tenant="b") == [404]
    assert found(token="a-token") == [201]
    assert found(method="DELETE") == [404]
    assert found(method="POST") == [401, 404, 201]
    assert found(method="PATCH") == []
    assert found(status=401) == [401]
    assert found(status=403) == [404]  # its caller was refused that as well
    assert found(status=201) == [201]
    assert found(refused=True) == [401, 404]
    assert found(subject=ID) == [404]
    assert found(since="2020-01-01T00:00:00Z", until="2020-01-02T00:00:00Z") == []
    assert found(since="2020-01-01T00:00:00+02:00") == [401, 404, 201]
    first = api.operator.get("/v1/audit", params={"limit": 2}).json()
    rest = api.operator.get("/v1/audit", params={"cursor": first["next"]}).json()
    assert [each["status"] for each in first["items"] + rest["items"]] == [401, 404, 201]
    assert rest["next"] is None


def test_the_audit_is_for_operators(api: Api):
    the_problem(api.tenant_a.get("/v1/audit"), 403, "forbidden")
    bad = api.operator.get("/v1/audit", params={"since": "2026-01-01T00:00:00"})
    assert places(the_problem(bad, 422, "invalid")) == ["since"]


def test_paths_that_no_database_could_hold_are_kept_as_they_were_sent(api: Api):
    for number, path in enumerate(("/v1/tenants/%00", "/v1/tenants/%ff%fe", "/v1/" + "x" * 3000)):
        operator = api.client(a_token(api.registry, None, f"ops{number}"))
        answer = operator.delete(path)
        assert answer.status_code in (404, 422), path
        newest = entries(api, limit=1)[0]
        assert newest["path"] == path[:500]
        assert newest["request_id"] == answer.headers["x-request-id"]


def test_a_flood_of_refused_calls_of_a_good_token_is_one_row_a_minute(api: Api):
    app = create_app(api.registry, limits=RateLimits(tokens=Rate(per_s=0.001, burst=11)))
    busy = a_client(app, token=a_token(api.registry, "a", "busy"))
    json = {"Content-Type": "application/json"}
    for _ in range(3):
        busy.post("/v1/requests", content=b"{", headers=json)
        busy.post("/v1/tenants", json={"name": "mine"})
        busy.delete(f"/v1/requests/{ID}")
    busy.post("/v1/requests", json={})
    made = busy.post("/v1/requests", json={"vm_type": "small", "count": 1})
    assert made.status_code == 201
    for _ in range(5):
        assert busy.delete(f"/v1/requests/{ID}").status_code == 429

    app.state.refusals.flush()

    accepted, refused = entries(api)
    assert (accepted["status"], accepted["refusals"]) == (201, None)
    assert (refused["status"], refused["token"], refused["suppressed"]) == (400, "busy", 14)
    assert refused["refusals"] == {
        "400 POST /v1/requests": 3,
        "403 POST /v1/tenants": 3,
        "404 DELETE /v1/requests/{request_id}": 3,
        "422 POST /v1/requests": 1,
        "429 DELETE none": 5,
    }
    assert refused["last_at"] >= refused["at"]


def test_the_first_refusal_is_in_the_audit_before_it_is_answered(api: Api):
    api.tenant_b.delete(f"/v1/requests/{ID}")

    (entry,) = entries(api)
    assert (entry["status"], entry["refusals"], entry["last_at"]) == (404, None, None)


def test_old_rows_go_with_the_rest_of_history(api: Api, raw: RawSql):
    add_tenant(api.registry, "c")
    api.operator.delete("/v1/tenants/c")
    raw.run(f"UPDATE audit SET at = {raw.before('at', '500 days')}")

    assert api.registry.retention.count_due(Periods()).audit == 1
    assert api.registry.retention.purge_batch(Periods()).audit == 1
    assert entries(api) == []


def _a_reader(registry: Registry) -> str:
    return registry.tokens.create("operator", None, "reader", actor="cli", read_only=True)[1]
