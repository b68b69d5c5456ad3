"""Tokens: who may call, and who no longer may."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.rest import create_app
from controller.rest.middleware.rate_limits import Rate, RateLimits
from registry import Registry
from tests.e2e.conftest import Api, a_token
from tests.problems import places, the_problem
from tests.raw_sql import RawSql
from tests.register import ON_ANY_DATABASE, add_tenant
from tests.servers.http_client import a_client

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


# ---- scopes, and an end -----------------------------------------------------


def test_a_token_that_reads_only_sees_all_that_its_role_sees(api: Api):
    for role, tenant in (("operator", None), ("tenant", "a")):
        body = {"role": role, "tenant": tenant, "name": f"r-{role}", "read_only": True}
        made = api.operator.post("/v1/tokens", json=body).json()
        assert made["read_only"] is True
        reader = api.client(made["secret"])
        assert reader.get("/v1/requests").status_code == 200
        assert reader.get("/v1/hosts").status_code == (200 if tenant is None else 403)


def test_a_token_that_reads_only_changes_nothing_and_is_told_what_would_be_needed(api: Api):
    body = {"role": "tenant", "tenant": "a", "name": "reader", "read_only": True}
    reader = api.client(api.operator.post("/v1/tokens", json=body).json()["secret"])
    paths = api.app.openapi()["paths"]
    changing = [
        (method, path.replace("{", "").replace("}", ""))
        for path, operations in paths.items()
        for method in operations
        if method in {"post", "patch", "put", "delete"}
        # They change the caller's own access alone: tests of logins say what a reader may.
        and path not in {"/v1/login", "/v1/login/links", "/v1/token"}
    ]
    assert len(changing) > 25

    for method, path in changing:
        problem = the_problem(reader.request(method, path, json={}), 403, "forbidden")
        assert problem["scope"] == {"needed": "tenant a", "given": "tenant a, read-only"}, path


def test_who_lacks_a_scope_is_told_which(api: Api):
    host = the_problem(api.tenant_a.get("/v1/hosts"), 403, "forbidden")
    other = the_problem(api.tenant_a.get("/v1/requests", params={"tenant": "b"}), 403, "forbidden")

    assert host["scope"] == {"needed": "operator", "given": "tenant a"}
    assert other["scope"] == {"needed": "tenant b or operator", "given": "tenant a"}
    assert "needs a token of scope operator" in host["detail"]


def test_a_token_ends_when_its_time_is_over_and_frees_its_name(api: Api, raw: RawSql):
    made = api.operator.post("/v1/tokens", json=LAPTOP | {"ttl_s": 3600}).json()
    laptop = api.client(made["secret"])
    assert laptop.get("/v1/requests").status_code == 200
    assert made["expires_at"] > made["created_at"]

    raw.run("UPDATE tokens SET expires_at = created_at WHERE name = 'laptop'")

    the_problem(laptop.get("/v1/requests"), 401, "unauthorized")
    again = api.operator.post("/v1/tokens", json=LAPTOP)
    assert again.status_code == 201
    assert api.client(again.json()["secret"]).get("/v1/requests").status_code == 200


@pytest.mark.parametrize(
    ("said", "usual", "days"),
    [({}, 90, 90), ({"ttl_s": "never"}, 90, None), ({"ttl_s": 86_400}, 90, 1), ({}, None, None)],
)
def test_an_operators_token_ends_by_default_and_never_only_when_asked(
    register: Registry, said: dict[str, Any], usual: int | None, days: int | None
):
    ttl_s = None if usual is None else usual * 86_400
    operator = a_client(
        create_app(register, operator_token_ttl_s=ttl_s), token=a_token(register, None)
    )

    made = operator.post("/v1/tokens", json={"role": "operator", "name": "alice"} | said).json()

    if days is None:
        assert made["expires_at"] is None
    else:
        life = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(
            made["created_at"]
        )
        assert life == timedelta(days=days)


@pytest.mark.parametrize(
    ("said", "status"),
    [({}, 201), ({"ttl_s": 86_400}, 201), ({"ttl_s": "never"}, 422), ({"ttl_s": 86_401}, 422)],
)
@pytest.mark.parametrize("by_login", [True, False])
@ON_ANY_DATABASE
def test_a_token_that_ends_makes_no_operators_token_that_does_not(
    register: Registry, by_login: bool, said: dict[str, Any], status: int
):
    app = create_app(register, operator_token_ttl_s=86_400)
    secret = a_token(register, None)
    if by_login:
        link = a_client(app, token=secret).post("/v1/login/links", json={}).json()
        secret = a_client(app).post("/v1/login", json={"code": link["code"]}).json()["secret"]
    else:
        _, secret = register.tokens.create("operator", None, "lent", ttl_s=3600, actor="cli")

    body = {"role": "operator", "name": "alice"} | said
    answer = a_client(app, token=secret).post("/v1/tokens", json=body)

    assert answer.status_code == status, answer.text
    if status == 422:
        assert places(the_problem(answer, 422, "invalid")) == ["#/ttl_s"]
        assert "FUGA_OPERATOR_TOKEN_DAYS" in answer.text
        assert "alice" not in {each.name for each in register.tokens.list().items}


def test_a_tenants_token_lives_until_it_is_revoked_unless_it_says_so(register: Registry):
    add_tenant(register, "a")
    app = create_app(register, operator_token_ttl_s=86_400)
    operator = a_client(app, token=a_token(register, None))

    assert operator.post("/v1/tokens", json=LAPTOP).json()["expires_at"] is None


def test_it_is_told_to_the_hour_when_a_token_was_used(api: Api, raw: RawSql):
    def last_used() -> str | None:
        items = api.operator.get("/v1/tokens").json()["items"]
        return next(each["last_used_at"] for each in items if each["name"] == "laptop")

    secret = api.operator.post("/v1/tokens", json=LAPTOP).json()["secret"]
    assert last_used() is None
    for _ in range(3):
        api.client(secret).get("/v1/requests")
    first = last_used()
    assert first is not None

    raw.run("UPDATE tokens SET last_used_at = NULL WHERE name = 'laptop'")
    api.client(secret).get("/v1/requests")

    assert last_used() is None, "a use within the hour is no second write"


# ---- how often --------------------------------------------------------------


def limited(register: Registry, **rates: Rate) -> Any:
    app = create_app(register, limits=RateLimits(**rates))
    return lambda token: a_client(app, token=token)


def test_a_token_that_calls_too_often_is_told_when_to_come_back(api: Api):
    client = limited(api.registry, tokens=Rate(per_s=0.001, burst=3))
    busy = client(a_token(api.registry, None, "busy"))
    other = client(a_token(api.registry, None, "other"))
    for _ in range(3):
        assert busy.get("/v1/requests").status_code == 200

    answer = busy.get("/v1/requests")

    problem = the_problem(answer, 429, "rate_limited")
    assert "busy" in problem["detail"]
    assert int(answer.headers["retry-after"]) > 1
    assert other.get("/v1/requests").status_code == 200
    assert busy.get("/healthz").status_code == 200


def test_who_guesses_tokens_is_not_even_looked_up(api: Api):
    client = limited(api.registry, failures=Rate(per_s=0.001, burst=2))
    honest = client(a_token(api.registry, None, "honest"))
    assert honest.get("/v1/requests").status_code == 200
    for guess in ("wrong", "worse"):
        the_problem(client(guess).get("/v1/requests"), 401, "unauthorized")

    for guess in ("wrong", None):
        answer = client(guess).get("/v1/requests")
        the_problem(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) > 1
    assert honest.get("/v1/requests").status_code == 200, "who shares the address goes on"
