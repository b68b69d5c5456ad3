"""Logging in by a one-time link, over REST."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from controller.control_center.purge import purge_all
from controller.rest import create_app
from controller.rest.middleware.rate_limits import Rate, RateLimits
from registry import Registry
from registry.admin import Periods, PurgeCounts
from registry.tenancy import logins
from tests.e2e.conftest import Api, a_token
from tests.problems import the_problem
from tests.raw_sql import RawSql
from tests.servers.http_client import a_client


def a_link(client: httpx.Client, **body: Any) -> str:
    made = client.post("/v1/login/links", json=body)
    assert made.status_code == 201, made.text
    code: str = made.json()["code"]
    return code


def logged_in(api: Api, code: str) -> dict[str, Any]:
    answer = api.stranger.post("/v1/login", json={"code": code})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def life(token: dict[str, Any]) -> timedelta:
    ends, made = (datetime.fromisoformat(token[at]) for at in ("expires_at", "created_at"))
    return ends - made


def test_a_link_logs_in_once_with_the_rights_of_who_made_it_and_for_hours(api: Api) -> None:
    for client, tenant in ((api.operator, None), (api.tenant_a, "a")):
        code = a_link(client)

        made = logged_in(api, code)

        assert (made["role"], made["tenant"]) == ("tenant" if tenant else "operator", tenant)
        assert (made["read_only"], made["login"]) == (False, "link")
        assert life(made) == timedelta(hours=12)
        shown = api.client(made["secret"]).get("/v1/token").json()
        assert shown["name"] == made["name"]
        the_problem(api.stranger.post("/v1/login", json={"code": code}), 401, "login_refused")


def test_nobody_gets_more_or_longer_by_a_link_than_he_had(api: Api) -> None:
    _, secret = api.registry.tokens.create(
        "tenant", "a", "eyes", actor="test", read_only=True, ttl_s=3600
    )
    eyes = logged_in(api, a_link(api.client(secret)))
    less = logged_in(api, a_link(api.operator, read_only=True))
    again = logged_in(api, a_link(api.client(less["secret"])))

    assert (eyes["tenant"], eyes["read_only"], again["read_only"]) == ("a", True, True)
    assert life(eyes) <= timedelta(hours=1)
    assert again["expires_at"] <= less["expires_at"]
    the_problem(api.client(again["secret"]).post("/v1/tenants", json={}), 403, "forbidden")


def test_a_link_that_is_over_used_or_made_up_is_refused_alike(api: Api, raw: RawSql) -> None:
    used, late, of_revoked = a_link(api.operator), a_link(api.operator), a_link(api.tenant_a)
    logged_in(api, used)
    raw.run("UPDATE login_codes SET expires_at = created_at WHERE used_at IS NULL")
    good = a_link(api.tenant_b)
    (of_a,) = (each for each in api.registry.tokens.list().items if each.tenant == "a")
    of_revoked = a_link(api.tenant_a)
    api.registry.tokens.revoke(of_a.id, actor="test")

    answers = [
        api.stranger.post("/v1/login", json={"code": code})
        for code in (used, late, of_revoked, good[:-1], "fuga_once_" + "x" * 22, "\u0000", "ü")
    ]

    assert len({each.text for each in answers}) == 1
    problem = the_problem(answers[0], 401, "login_refused")
    assert "used, is over, or never was one" in problem["detail"]
    assert logged_in(api, good)["tenant"] == "b"


def test_a_token_takes_all_logins_with_it_that_came_of_it(api: Api) -> None:
    _, secret = api.registry.tokens.create("operator", None, "alice", actor="test")
    first = logged_in(api, a_link(api.client(secret)))
    second = logged_in(api, a_link(api.client(first["secret"])))
    waiting = a_link(api.client(second["secret"]))
    assert api.client(second["secret"]).get("/v1/hosts").status_code == 200
    (alice,) = (each for each in api.registry.tokens.list().items if each.name == "alice")

    api.operator.delete(f"/v1/tokens/{alice.id}")

    for each in (first, second):
        the_problem(api.client(each["secret"]).get("/v1/hosts"), 401, "unauthorized")
    the_problem(api.stranger.post("/v1/login", json={"code": waiting}), 401, "login_refused")


def test_a_login_ends_when_its_holder_logs_out_and_a_token_made_by_hand_does_not(api: Api) -> None:
    reader = api.client(logged_in(api, a_link(api.tenant_a, read_only=True))["secret"])

    left = reader.delete("/v1/token")

    assert left.json()["revoked_at"] is not None
    the_problem(reader.get("/v1/token"), 401, "unauthorized")
    the_problem(api.tenant_a.delete("/v1/token"), 409, "conflict")
    assert api.tenant_a.get("/v1/token").status_code == 200


def test_who_guesses_links_is_slowed_down_and_those_with_tokens_go_on(api: Api) -> None:
    app = create_app(api.registry, limits=RateLimits(failures=Rate(per_s=0.001, burst=2)))
    honest = a_client(app, token=a_token(api.registry, None, "honest"))
    code = a_link(honest)
    for guess in ("wrong", "worse"):
        answer = a_client(app).post("/v1/login", json={"code": guess})
        the_problem(answer, 401, "login_refused")

    for each in ("wrong", code):
        answer = a_client(app).post("/v1/login", json={"code": each})
        the_problem(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) > 1
    assert honest.get("/v1/hosts").status_code == 200


def test_links_that_nobody_opens_are_few(api: Api) -> None:
    for _ in range(20):
        a_link(api.tenant_a)

    answer = api.tenant_a.post("/v1/login/links", json={})

    assert "20 links" in the_problem(answer, 409, "conflict")["detail"]
    a_link(api.tenant_b)


def test_a_token_does_not_multiply_by_logins_of_its_logins(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "MAX_LOGINS", 3)
    first = api.client(logged_in(api, a_link(api.tenant_a))["secret"])
    second = api.client(logged_in(api, a_link(first))["secret"])
    a_link(second)

    for each in (api.tenant_a, first, second):
        answer = each.post("/v1/login/links", json={})
        assert "3 logins and links" in the_problem(answer, 409, "conflict")["detail"]

    a_link(api.tenant_b)
    second.delete("/v1/token")
    a_link(first)


def test_a_malformed_code_or_verifier_is_not_quoted(api: Api) -> None:
    for body in ({"code": "x", "verifier": "hunter2"}, {"code": "hunter2" * 2000}):
        answer = api.stranger.post("/v1/login", json=body)

        the_problem(answer, 422, "invalid")
        assert "hunter2" not in answer.text


def test_the_audit_tells_who_logged_in_and_nobody_is_told_the_code(api: Api) -> None:
    code = a_link(api.tenant_a)
    made = logged_in(api, code)
    api.stranger.post("/v1/login", json={"code": "wrong"})

    rows = api.operator.get("/v1/audit").json()["items"]

    shown = [(each["path"], each["token"], each["tenant"], each["status"]) for each in rows]
    assert shown == [
        ("/v1/login", None, None, 401),
        ("/v1/login", made["name"], "a", 201),
        ("/v1/login/links", "a-token", "a", 201),
    ]
    events = api.operator.get("/v1/events").text
    assert "logged_in" in events
    for secret in (code, made["secret"]):
        for path in ("/v1/audit", "/v1/events", "/v1/tokens"):
            assert secret not in api.operator.get(path).text


def test_the_code_of_a_call_that_is_repeated_is_the_same_and_good_once(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first, second = (
        api.operator.post("/v1/login/links", json={}, headers=key).json() for _ in range(2)
    )

    assert second == first
    logged_in(api, second["code"])
    refused = api.stranger.post("/v1/login", json={"code": first["code"]})
    the_problem(refused, 401, "login_refused")


def test_what_logins_left_goes_after_a_day_and_keeps_no_tenant(
    register: Registry, api: Api, raw: RawSql
) -> None:
    made = logged_in(api, a_link(api.tenant_a))
    waiting = a_link(api.client(made["secret"]))
    assert register.retention.count_due(Periods()) == PurgeCounts()
    (of_a,) = (each for each in register.tokens.list().items if each.name == "a-token")
    days = raw.before("expires_at", "2 days")
    raw.run(f"UPDATE tokens SET expires_at = {days} WHERE login IS NOT NULL")
    raw.run(f"UPDATE login_codes SET expires_at = {days}")

    purged = purge_all(register, Periods())

    assert (purged.login_codes, purged.login_tokens) == (2, 1)
    assert [each.name for each in register.tokens.list().items if each.login] == []
    the_problem(api.stranger.post("/v1/login", json={"code": waiting}), 401, "login_refused")
    late = logged_in(api, a_link(api.tenant_a))
    register.tokens.revoke(of_a.id, actor="test")
    the_problem(api.client(late["secret"]).get("/v1/token"), 401, "unauthorized")
    register.tenants.remove("a", actor="test")


def test_a_login_that_has_expired_keeps_no_tenant_from_being_removed(
    register: Registry, api: Api, raw: RawSql
) -> None:
    made = logged_in(api, a_link(api.tenant_a))
    raw.run("UPDATE tokens SET revoked_at = created_at WHERE login IS NULL AND role = 'tenant'")
    with pytest.raises(Exception, match="1 token in force"):
        register.tenants.remove("a", actor="test")
    raw.run(f"UPDATE tokens SET expires_at = created_at WHERE name = '{made['name']}'")

    register.tenants.remove("a", actor="test")
