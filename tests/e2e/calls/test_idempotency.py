"""A client that saw no answer calls again with the same Idempotency-Key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Api, a_token
from tests.problems import places, the_problem
from tests.raw_sql import RawSql

BODY = {"vm_type": "small", "count": 2}


def ask(client: httpx.Client, key: str, **changes: Any) -> httpx.Response:
    return client.post("/v1/requests", json={**BODY, **changes}, headers={"Idempotency-Key": key})


def test_the_same_call_twice_makes_one_request_and_one_answer(api: Api):
    first = ask(api.tenant_a, "k1")
    second = ask(api.tenant_a, "k1")

    assert first.status_code == second.status_code == 201
    assert first.text == second.text
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(api.tenant_a.get("/v1/requests").json()["items"]) == 1


def test_a_body_that_means_the_same_is_the_same(api: Api):
    first = ask(api.tenant_a, "k1")
    second = api.tenant_a.post(
        "/v1/requests",
        content=b'{ "count": 2,\n "min_count": 1, "vm_type": "small" }',
        headers={"Idempotency-Key": "k1", "Content-Type": "application/json"},
    )

    assert first.text == second.text


def test_another_body_with_the_key_is_refused(api: Api):
    ask(api.tenant_a, "k1")

    problem = the_problem(ask(api.tenant_a, "k1", count=3), 422, "idempotency_key_reused")

    assert "k1" in problem["detail"]
    assert len(api.tenant_a.get("/v1/requests").json()["items"]) == 1


def test_another_path_with_the_key_is_refused(api: Api):
    headers = {"Idempotency-Key": "k1"}
    api.operator.post("/v1/tenants", json={"name": "c"}, headers=headers)

    answer = api.operator.post(
        "/v1/vm-types",
        json={"name": "c", "resources": {"vcpus": 1, "memory_mib": 1}},
        headers=headers,
    )

    the_problem(answer, 422, "idempotency_key_reused")


def test_tenants_do_not_share_keys(api: Api):
    a = ask(api.tenant_a, "k1")
    b = ask(api.tenant_b, "k1")
    o = ask(api.operator, "k1", tenant="a")

    assert len({answer.json()["id"] for answer in (a, b, o)}) == 3


def test_while_the_first_call_is_in_progress_the_second_is_told_so(api: Api, raw: RawSql):
    """As a process of the release before begins: in a transaction of its own."""
    ask(api.tenant_a, "k1")
    raw.run("UPDATE idempotency_keys SET status = NULL, body = NULL, request_id = NULL")

    second = ask(api.tenant_a, "k1")

    assert "in progress" in the_problem(second, 409, "idempotency_in_progress")["detail"]
    assert second.headers["retry-after"]
    raw.run("DELETE FROM idempotency_keys")
    assert ask(api.tenant_a, "k1").status_code == 201


def test_many_calls_at_once_with_one_key_make_one_request(api: Api):
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: ask(api.tenant_a, "k1"), range(16)))

    made = {answer.text for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len(api.tenant_a.get("/v1/requests").json()["items"]) == 1


def test_a_refused_call_may_be_tried_again_with_its_key(api: Api):
    refused = ask(api.tenant_a, "k1", vm_type="medium")
    resources = {"vcpus": 2, "memory_mib": 6144}
    api.operator.post("/v1/vm-types", json={"name": "medium", "resources": resources})

    again = ask(api.tenant_a, "k1", vm_type="medium")

    the_problem(refused, 422, "invalid")
    assert again.status_code == 201


def test_a_repeated_token_shows_the_secret_that_authenticates_and_nobody_stores_it(
    api: Api, raw: RawSql
):
    body = {"role": "tenant", "tenant": "a", "name": "night"}
    headers = {"Idempotency-Key": "k1"}

    first = api.operator.post("/v1/tokens", json=body, headers=headers).json()
    second = api.operator.post("/v1/tokens", json=body, headers=headers).json()

    assert second == first
    assert api.client(second["secret"]).get("/v1/requests").status_code == 200
    assert second["secret"] not in str(raw.rows("SELECT * FROM idempotency_keys"))
    assert second["secret"] not in str(raw.rows("SELECT * FROM tokens"))


def test_another_token_of_the_same_role_is_not_shown_the_secret(api: Api):
    """It has a key of the same name, but not what the secret follows from."""
    body = {"role": "tenant", "tenant": "a", "name": "night"}
    headers = {"Idempotency-Key": "k1"}
    other = api.client(a_token(api.registry, None, "other"))

    first = api.operator.post("/v1/tokens", json=body, headers=headers)
    second = other.post("/v1/tokens", json=body, headers=headers)

    assert first.json()["secret"]
    the_problem(second, 409, "duplicate")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("tenants", {"name": "c"}, 201),
        ("vm-types", {"name": "c", "resources": {"vcpus": 1, "memory_mib": 1}}, 201),
        ("resources", {"name": "c"}, 201),
        ("hosts", {"name": "c", "uri": "qemu+tls://c/system"}, 202),
    ],
)
def test_every_creating_post_may_be_repeated(api: Api, path: str, body: Any, status: int):
    headers = {"Idempotency-Key": "k1"}

    first = api.operator.post(f"/v1/{path}", json=body, headers=headers)
    second = api.operator.post(f"/v1/{path}", json=body, headers=headers)

    assert first.status_code == second.status_code == status
    assert first.text == second.text


@pytest.mark.parametrize("key", ["", "x" * 201, "with space", "tab\there", b"\xff\xfe"])
def test_a_key_that_is_none_is_refused(api: Api, key: str | bytes):
    answer = api.tenant_a.post("/v1/requests", json=BODY, headers={"Idempotency-Key": key})

    assert places(the_problem(answer, 422, "invalid")) == ["Idempotency-Key"]
    assert api.tenant_a.get("/v1/requests").json()["items"] == []


@pytest.mark.parametrize("name", ["Idempotency-Key", "Content-Type"])
def test_a_header_that_may_come_once_is_refused_twice_and_nothing_is_made(api: Api, name: str):
    twice = [("Content-Type", "application/json"), (name, "k1"), (name, "k2")]

    answer = api.tenant_a.post("/v1/requests", json=BODY, headers=twice)

    problem = the_problem(answer, 422, "invalid")
    assert places(problem) == [name]
    assert not api.tenant_a.get("/v1/requests").json()["items"]
