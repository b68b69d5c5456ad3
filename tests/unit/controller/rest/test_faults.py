"""What callers see when our own parts fail, and what the log says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog
from structlog.typing import EventDict

from controller.rest.app import create_app
from controller.rest.metrics import HttpMetrics
from controller.rest.middleware.access_log import MAX_STRANGERS_LOGGED, AccessLog
from registry import Registry, RegistryUnavailableError
from service import ProcessMetrics
from tests.servers.asgi import call
from tests.servers.http_client import a_client


class BrokenRegistry:
    """Every look at it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"disk I/O error in {name}, password=hunter2")


class UnavailableRegistry:
    """Its database does not answer."""

    def __getattr__(self, name: str) -> Any:
        raise RegistryUnavailableError("database is locked")


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def test_an_unexpected_error_is_a_problem_with_an_incident_that_the_log_knows(
    lines: list[EventDict],
):
    client = a_client(create_app(cast(Registry, BrokenRegistry())), token="any")

    answer = client.get("/v1/hosts")

    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in answer.text
    assert "hunter2" not in answer.text
    logged = [line for line in lines if line["event"] == "request_failed"]
    assert [line["incident"] for line in logged] == [answer.json()["incident"]]


def test_every_call_leaves_one_line_without_its_secret(lines: list[EventDict]):
    client = a_client(create_app(cast(Registry, BrokenRegistry())), token="s3cret-token")

    client.get("/healthz", headers={"X-Request-Id": "abc-1"})
    client.get("/v1/hosts")

    calls = [line for line in lines if line["event"] == "http_request"]
    assert [(line["path"], line["status"]) for line in calls] == [
        ("/healthz", 200),
        ("/v1/hosts", 500),
    ]
    assert "s3cret" not in str(lines)


@pytest.mark.parametrize(("given", "kept"), [("abc-1", True), ("x" * 65, False), ("a b", False)])
def test_a_sensible_request_id_is_echoed_and_another_replaced(given: str, kept: bool):
    client = a_client(create_app(cast(Registry, BrokenRegistry())))

    answer = client.get("/healthz", headers={"X-Request-Id": given})

    assert (answer.headers["X-Request-Id"] == given) is kept


def test_the_process_lives_even_when_the_database_does_not():
    client = a_client(create_app(cast(Registry, UnavailableRegistry())))

    assert client.get("/healthz").json() == {"status": "ok"}
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")


def test_a_change_that_neither_database_nor_audit_takes_is_a_problem_and_a_line(
    lines: list[EventDict],
):
    client = a_client(create_app(cast(Registry, UnavailableRegistry())), token="any")

    answer = client.post("/v1/requests", json={"vm_type": "small", "count": 1})

    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    [line] = [line for line in lines if line["event"] == "audit_failed"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/requests", 503)


def test_a_flood_of_strangers_is_few_lines_and_how_many_more(lines: list[EventDict]):
    app = create_app(cast(Registry, BrokenRegistry()))
    now = 0.0
    logged = AccessLog(app, HttpMetrics(ProcessMetrics("test")), clock=lambda: now)

    for _ in range(1000):
        assert call(logged, "GET", "/nothing").status == 404
    now = 61.0
    call(logged, "GET", "/nothing")

    assert [line["event"] for line in lines].count("unknown_callers") == 1
    [shown] = [line for line in lines if line["event"] == "unknown_callers"]
    assert shown["suppressed"] == 1000 - MAX_STRANGERS_LOGGED
