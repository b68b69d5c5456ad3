"""Whose a thing is, is judged before it is read: refusals tell nothing by what they cost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import event

from controller.rest import create_app
from controller.rest.middleware.rate_limits import Rate, RateLimits
from registry.db import uuid7
from tests.e2e.conftest import Api
from tests.problems import the_problem
from tests.servers.asgi import call


@contextlib.contextmanager
def statements() -> Iterator[list[str]]:
    """Gather what is asked of any database meanwhile."""
    from sqlalchemy.engine import Engine

    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def requested_by(client: httpx.Client, path: str, status: int, method: str = "GET") -> list[str]:
    with statements() as seen:
        assert client.request(method, path, json={}).status_code == status
    return [each for each in seen if not each.startswith(("INSERT INTO audit", "UPDATE tokens"))]


@pytest.mark.parametrize(
    "below", ["", "/explanation", "/console"], ids=["itself", "explanation", "console"]
)
def test_another_tenants_thing_costs_what_one_does_that_is_not_there(api: Api, below: str):
    body = {"vm_type": "small", "count": 1}
    request = api.tenant_a.post("/v1/requests", json=body).json()["id"]
    vm = api.tenant_a.get("/v1/vms").json()["items"][0]["id"]
    api.tenant_b.get("/v1/vms")  # the token's last use is noted once in a while

    for kind, found in (("vms", vm), ("requests", request)):
        if kind == "requests" and below == "/console":
            continue
        others = requested_by(api.tenant_b, f"/v1/{kind}/{found}{below}", 404)
        nobodys = requested_by(api.tenant_b, f"/v1/{kind}/{uuid7()}{below}", 404)

        assert others == nobodys
        assert len(others) <= 8


def test_what_is_an_operators_is_not_read_for_a_tenant(api: Api):
    api.tenant_b.get("/v1/vms")

    for path in ("/v1/hosts/h1", "/v1/tenants/a", "/v1/tenants/nothing"):
        requested = requested_by(api.tenant_b, path, 403 if "hosts" in path else 404)

        assert not [each for each in requested if "FROM hosts" in each or "FROM tenants" in each]


@pytest.mark.parametrize("path", ["requests", "vms", "vm-types", "tenants", "hosts", "images"])
@pytest.mark.parametrize("text", ["WyJcdWQ4MDAiXQ", "WyJcdTAwMDAiXQ", "WyJcdWQ4MDAiLCAxXQ"])
def test_half_a_character_or_a_nul_in_a_cursor_is_refused(api: Api, path: str, text: str):
    answer = api.operator.get(f"/v1/{path}", params={"cursor": text})

    the_problem(answer, 422, "invalid")


def test_a_flood_of_strangers_waits_or_is_refused_and_health_is_told_always(api: Api):
    app = create_app(api.registry, limits=RateLimits(strangers=Rate(per_s=0.001, burst=2)))
    for _ in range(2):
        assert call(app, "GET", "/openapi.json").status == 200

    assert call(app, "GET", "/openapi.json").code == "rate_limited"
    assert call(app, "GET", "/nothing").code == "rate_limited"
    assert call(app, "GET", "/healthz").status == 200
    assert call(app, "GET", "/readyz").status == 200
