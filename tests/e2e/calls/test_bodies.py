"""Paths, methods and bodies that make no sense."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Api
from tests.problems import places, the_problem

JSON = {"Content-Type": "application/json"}


def test_a_path_that_leads_nowhere_is_a_problem(api: Api):
    for path in ("/nothing", "/v1/nothing", "/v1/requests/", "/v2/requests"):
        problem = the_problem(api.operator.get(path), 404, "no_such_path")
        assert "/docs" in problem["detail"]


def test_a_method_that_a_path_does_not_have_is_a_problem(api: Api):
    answer = api.operator.put("/v1/requests", json={})

    the_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    assert api.operator.put("/v1/hosts/h1", json={}).headers["allow"] == "DELETE, GET, PATCH"
    assert api.operator.post("/docs", json={}).headers["allow"] == "GET"


@pytest.mark.parametrize("body", [b"{", b"[1, 2", b"count=1", b"\xff\xfe", b'{"a": NaN}', b"'x'"])
def test_malformed_json_is_told_with_its_place(api: Api, body: bytes):
    answer = api.operator.post("/v1/requests", content=body, headers=JSON)

    assert "not JSON" in the_problem(answer, 400, "malformed")["detail"]


def test_json_that_is_no_object_is_refused(api: Api):
    for body in (b"[]", b"7", b'"x"', b"null", b"true"):
        answer = api.operator.post("/v1/requests", content=body, headers=JSON)

        assert places(the_problem(answer, 422, "invalid")) == ["#"]


def test_a_missing_body_is_refused(api: Api):
    the_problem(api.operator.post("/v1/requests"), 422, "invalid")


def test_nesting_without_end_is_refused(api: Api):
    answer = api.operator.post("/v1/requests", content=b"[" * 100_000, headers=JSON)

    the_problem(answer, 400, "malformed")


def test_another_content_type_is_refused(api: Api):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = api.operator.post(
            "/v1/requests", content=b"{}", headers={"Content-Type": content_type}
        )

        assert content_type in the_problem(answer, 415, "unsupported_media_type")["detail"]


def test_a_body_beyond_the_limit_is_refused(api: Api):
    answer = api.operator.post("/v1/requests", content=b" " * (256 * 1024 + 1), headers=JSON)

    the_problem(answer, 413, "too_large")


def test_a_body_that_hides_its_length_is_refused_too(api: Api):
    def chunks() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 1024

    answer = api.operator.post("/v1/requests", content=chunks(), headers=JSON)

    the_problem(answer, 413, "too_large")


def test_health_needs_no_token(api: Api):
    assert api.stranger.get("/healthz").json() == {"status": "ok"}
    ready = api.stranger.get("/readyz")
    assert ready.json() == {
        "status": "ok",
        "last_round": None,
        "last_round_age_s": None,
        "unattended": ["decide", "build", "poll"],
        "disks": [],
    }
    assert api.stranger.get("/openapi.json").status_code == 200
    assert api.stranger.get("/docs").status_code == 200
