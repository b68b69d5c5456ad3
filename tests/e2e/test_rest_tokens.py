"""Tokens: who may call, and who no longer may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem

LAPTOP = {"role": "tenant", "tenant": "a", "name": "laptop"}


def test_a_new_token_works_until_it_is_revoked(api: Api):
    made = api.operator.post("/v1/tokens", json=LAPTOP)
    assert made.status_code == 201
    laptop = api.client(made.json()["secret"])
    assert laptop.get("/v1/requests").status_code == 200

    revoked = api.operator.delete(f"/v1/tokens/{made.json()['id']}")

    assert revoked.json()["revoked_at"] is not None
    answer = laptop.get("/v1/requests")
    the_problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_secret_is_told_once(api: Api):
    secret = api.operator.post("/v1/tokens", json=LAPTOP).json()["secret"]

    assert secret not in api.operator.get("/v1/tokens").text
    assert secret not in api.operator.get("/v1/events").text


def test_a_call_without_a_known_token_gets_nowhere(api: Api):
    for path in ("/v1/requests", "/v1/hosts", "/v1/nothing", "/v1"):
        for client in (api.stranger, api.client("wrong"), api.client("fuga_" + "x" * 43)):
            answer = client.get(path)
            the_problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_body_without_a_token_is_not_even_looked_at(api: Api):
    answer = api.stranger.post("/v1/requests", content=b"{" * 1000)

    the_problem(answer, 401, "unauthorized")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"role": "operator", "tenant": "a", "name": "x"}, "#/tenant"),
        ({"role": "tenant", "name": "x"}, "#/tenant"),
        ({"role": "tenant", "tenant": "nobody", "name": "x"}, "#/tenant"),
        ({"role": "root", "name": "x"}, "#/role"),
        ({"role": "operator"}, "#/name"),
    ],
)
def test_a_token_for_nobody_is_not_made(api: Api, body: dict[str, Any], place: str):
    answer = api.operator.post("/v1/tokens", json=body)

    assert places(the_problem(answer, 422, "invalid")) == [place]


def test_tenants_make_list_and_revoke_no_tokens(api: Api):
    token = api.operator.post("/v1/tokens", json=LAPTOP).json()["id"]

    for answer in (
        api.tenant_a.post("/v1/tokens", json=LAPTOP),
        api.tenant_a.get("/v1/tokens"),
        api.tenant_a.delete(f"/v1/tokens/{token}"),
    ):
        the_problem(answer, 403, "forbidden")


def test_a_token_that_does_not_exist_is_not_revoked(api: Api):
    answer = api.operator.delete("/v1/tokens/00000000-0000-7000-8000-000000000000")

    the_problem(answer, 404, "not_found")
