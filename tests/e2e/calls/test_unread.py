"""Floods of bodies: what is refused by its head costs nothing, however long its body is."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from controller.rest import create_app
from controller.rest.middleware import bodies
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.rate_limits import Rate, RateLimits
from tests.e2e.conftest import Api, a_token
from tests.problems import the_problem
from tests.servers.asgi import call

JSON = {"content-type": "application/json"}
NESTED = b"[" * (256 * 1024)
FLOOD = [NESTED[:65536]] * 4
ANNOUNCED = JSON | {"content-length": str(len(NESTED))}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("POST", "/openapi.json", 405, "method_not_allowed"),
        ("POST", "/docs", 405, "method_not_allowed"),
        ("POST", "/problems/malformed", 405, "method_not_allowed"),
        ("POST", "/nothing", 404, "no_such_path"),
        ("POST", "/v1/requests", 401, "unauthorized"),
        ("POST", "/v1/nothing", 401, "unauthorized"),
    ],
)
def test_brackets_without_end_from_a_stranger_are_not_read(
    api: Api, method: str, path: str, status: int, code: str
):
    answer = call(api.app, method, path, headers=ANNOUNCED, body=FLOOD)

    assert (answer.status, answer.code, answer.read) == (status, code, 0)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/v1/nothing", ANNOUNCED, 404),
        ("PUT", "/v1/requests", ANNOUNCED, 405),
        ("POST", "/v1/tenants", ANNOUNCED, 403),
        ("PATCH", "/v1/hosts/h1", ANNOUNCED, 403),
        ("POST", "/v1/images/upload?name=x&format=raw", ANNOUNCED, 403),
        ("POST", "/v1/requests", ANNOUNCED | {"content-type": "text/plain"}, 415),
        ("POST", "/v1/requests", {"transfer-encoding": "chunked"}, 415),
        ("POST", "/v1/requests", JSON | {"content-length": "262145"}, 413),
        ("GET", "/v1/requests", ANNOUNCED, 200),
    ],
)
def test_what_a_tenants_call_is_refused_for_without_its_body_leaves_the_body_unread(
    api: Api, method: str, path: str, headers: dict[str, str], status: int
):
    token = a_token(api.registry, "a", "laptop")

    answer = call(api.app, method, path, token=token, headers=headers, body=FLOOD)

    assert (answer.status, answer.read) == (status, 0)


def test_a_token_that_only_reads_or_calls_too_often_has_no_body_read(api: Api):
    _, reader = api.registry.tokens.create("tenant", "a", "reader", actor="cli", read_only=True)
    busy = create_app(api.registry, limits=RateLimits(tokens=Rate(per_s=0.001, burst=1)))
    token = a_token(api.registry, "a", "busy")
    call(busy, "GET", "/v1/requests", token=token)

    read_only = call(api.app, "POST", "/v1/requests", token=reader, headers=JSON, body=FLOOD)
    too_often = call(busy, "POST", "/v1/requests", token=token, headers=JSON, body=FLOOD)

    assert (read_only.status, read_only.read) == (403, 0)
    assert (too_often.status, too_often.read) == (429, 0)


def test_a_body_that_hides_its_length_is_read_up_to_the_bound(api: Api):
    token = a_token(api.registry, "a", "laptop")
    chunked = JSON | {"transfer-encoding": "chunked"}

    answer = call(
        api.app, "POST", "/v1/requests", token=token, headers=chunked, body=[b" " * 1024] * 10_000
    )

    assert (answer.status, answer.read) == (413, 257)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"count": [' + b"[]," * 2_000 + b"1]}", "2000 lists and objects"),
        (b'{"count": [' + b'{"a":1},' * 2_000 + b"1]}", "2000 lists and objects"),
        (b"[" + b"1," * 20_001 + b"1]", "20000 values"),
        (b"[" + b'"",' * 20_001 + b"1]", "20000 strings"),
    ],
)
def test_a_body_of_many_small_things_is_refused_by_their_number(api: Api, body: bytes, told: str):
    answer = api.operator.post("/v1/requests", content=body, headers=JSON)

    assert told in the_problem(answer, 400, "malformed")["detail"]


def test_long_bodies_are_parsed_outside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch):
    apart: list[int] = []
    parse = bodies.run_in_threadpool  # type: ignore[attr-defined]

    async def noted(work: Any, body: bytes) -> Any:
        apart.append(len(body))
        return await parse(work, body)

    monkeypatch.setattr(bodies, "run_in_threadpool", noted)
    for size in (100, 20_000):
        body = b'{"vm_type": "small", "count": 1}' + b" " * size
        assert api.tenant_a.post("/v1/requests", content=body, headers=JSON).status_code == 201

    assert apart == [20_032]


def test_every_route_below_v1_reads_bodies_behind_the_guard(api: Api):
    routes = list(_routes(api.app.routes))
    below = [route for route in routes if "bearer" in str(route.dependencies).lower()]
    assert len(below) > 60

    assert [route.path for route in below if not isinstance(route, BoundedRoute)] == []


def _routes(found: Any) -> Any:
    for route in found:
        inner: list[BaseRoute] | None = getattr(
            getattr(route, "original_router", None), "routes", None
        )
        if inner is not None:
            yield from _routes(inner)
        elif isinstance(route, APIRoute):
            yield route
